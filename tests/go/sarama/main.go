// sarama as a client of the tests: what Terraform's provider for Kafka, and many programs in Go, are built on.
//
//	sarama transact BOOTSTRAP ID                              what a producer with that transactional id is told
//	sarama secure BOOTSTRAP TOPIC MECHANISM TLS CA USER SECRET produce, read in a group, describe: one line
//	sarama topic BOOTSTRAP TOPIC PARTITIONS REPLICAS          create it, and how it is shown, one fact in a line
package main

import (
	"fmt"
	"log"
	"os"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/IBM/sarama"
)

func main() {
	log.SetFlags(0)
	config := sarama.NewConfig()
	config.Version = sarama.V3_6_0_0
	mode, bootstrap, arguments := os.Args[1], strings.Split(os.Args[2], ","), os.Args[3:]
	var err error
	switch mode {
	case "transact":
		transact(bootstrap, arguments[0], config)
	case "secure":
		err = secure(bootstrap, arguments, config)
	case "topic":
		err = topic(bootstrap, arguments, config)
	default:
		err = fmt.Errorf("what is %q?", mode)
	}
	if err != nil {
		log.Fatal(err)
	}
}

func transact(bootstrap []string, id string, config *sarama.Config) {
	config.Producer.Idempotent = true
	config.Producer.RequiredAcks = sarama.WaitForAll
	config.Producer.Return.Successes = true
	config.Producer.Transaction.ID = id
	config.Net.MaxOpenRequests = 1
	producer, err := sarama.NewSyncProducer(bootstrap, config)
	if err != nil {
		fmt.Println(err)
		return
	}
	defer producer.Close()
	fmt.Println("begun")
}

func topic(bootstrap []string, arguments []string, config *sarama.Config) error {
	name := arguments[0]
	partitions, err := strconv.ParseInt(arguments[1], 10, 32)
	if err != nil {
		return err
	}
	replicas, err := strconv.ParseInt(arguments[2], 10, 16)
	if err != nil {
		return err
	}
	client, err := sarama.NewClient(bootstrap, config)
	if err != nil {
		return err
	}
	defer client.Close()
	admin, err := sarama.NewClusterAdminFromClient(client)
	if err != nil {
		return err
	}
	wanted := &sarama.TopicDetail{NumPartitions: int32(partitions), ReplicationFactor: int16(replicas)}
	if err := admin.CreateTopic(name, wanted, false); err != nil {
		return err
	}
	if err := client.RefreshMetadata(name); err != nil {
		return err
	}
	listed, err := untilListed(admin, name)
	if err != nil {
		return err
	}
	fmt.Printf("listed %d %d\n", listed.NumPartitions, listed.ReplicationFactor)
	described, err := admin.DescribeTopics([]string{name})
	if err != nil {
		return err
	}
	found := described[0].Partitions
	sort.Slice(found, func(one, other int) bool { return found[one].ID < found[other].ID })
	for _, partition := range found {
		ours, err := client.Replicas(name, partition.ID)
		if err != nil {
			return err
		}
		fmt.Printf("partition %d %d %d %d\n", partition.ID, len(partition.Replicas), len(partition.Isr), len(ours))
	}
	return nil
}

// A broker that was not asked to create the topic learns of it a moment later, as Kafka's do.
func untilListed(admin sarama.ClusterAdmin, name string) (sarama.TopicDetail, error) {
	for deadline := time.Now().Add(30 * time.Second); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		topics, err := admin.ListTopics()
		if err != nil {
			return sarama.TopicDetail{}, err
		}
		if found, known := topics[name]; known {
			return found, nil
		}
	}
	return sarama.TopicDetail{}, fmt.Errorf("%s is not listed", name)
}
