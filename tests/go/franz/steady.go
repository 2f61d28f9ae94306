package main

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

// steadily produces numbered records until a line comes on stdin, and prints one for each answer: its number,
// partition and offset, or its number and the error.
func steadily(bootstrap kgo.Opt, arguments []string) error {
	topic, partitions, name := arguments[0], number(arguments[1]), arguments[2]
	client, err := kgo.NewClient(bootstrap, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	if err != nil {
		return err
	}
	defer client.Close()
	var stopped atomic.Bool
	go func() {
		bufio.NewReader(os.Stdin).ReadString('\n') //nolint:errcheck // its end says the same
		stopped.Store(true)
	}()
	for sent := int64(0); !stopped.Load(); sent++ {
		record := &kgo.Record{
			Topic: topic, Partition: int32(sent % partitions), Key: []byte(name),
			Value: []byte(fmt.Sprintf("%s %d", name, sent)),
		}
		client.Produce(context.Background(), record, func(done *kgo.Record, failure error) {
			if failure != nil {
				fmt.Printf("%d %v\n", sent, failure)
			} else {
				fmt.Printf("%d %d %d\n", sent, done.Partition, done.Offset)
			}
		})
		time.Sleep(time.Duration(number(arguments[3])) * time.Millisecond)
	}
	if err := client.Flush(context.Background()); err != nil {
		return err
	}
	fmt.Println(".")
	return nil
}
