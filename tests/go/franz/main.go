// franz-go as a client of the tests.
//
//	franz read BOOTSTRAP GROUP ISOLATION FETCH_BYTES TOPIC...   orders on stdin, see line_reader.py
//	franz produce BOOTSTRAP TOPIC PARTITION CODEC IDEMPOTENT    records on stdin, their offsets to stdout
//	franz fetch BOOTSTRAP TOPIC PARTITION OFFSET COUNT          records to stdout
//	franz follow BOOTSTRAP TOPIC OFFSET BYTES                   offsets to stdout, once a line comes on stdin
//	franz secure BOOTSTRAP TOPIC MECHANISM TLS CA USER SECRET    produce, read in a group, describe: one line
//	franz steadily BOOTSTRAP TOPIC PARTITIONS NAME PAUSE_MS     numbered records until a line on stdin, answers to stdout
//	franz transact BOOTSTRAP ID                                 what a producer with that transactional id is told
package main

import (
	"bufio"
	"context"
	"fmt"
	"log"
	"os"
	"strconv"
	"time"

	"dray-tests/lines"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const largestRecord = 20_000_000

func main() {
	log.SetFlags(0)
	output := bufio.NewWriter(os.Stdout)
	mode, bootstrap, arguments := os.Args[1], kgo.SeedBrokers(os.Args[2]), os.Args[3:]
	var err error
	switch mode {
	case "read":
		err = read(bootstrap, arguments, output)
	case "produce":
		err = produce(bootstrap, arguments, output)
	case "steadily":
		err = steadily(bootstrap, arguments)
	case "fetch":
		err = fetch(bootstrap, arguments, output)
	case "follow":
		err = follow(bootstrap, arguments, output)
	case "secure":
		err = secure(bootstrap, arguments, output)
	case "transact":
		err = transact(bootstrap, arguments[0], output)
	default:
		err = fmt.Errorf("what is %q?", mode)
	}
	if err == nil {
		err = output.Flush()
	}
	if err != nil {
		log.Fatal(err)
	}
}

func input() *bufio.Scanner {
	scanner := bufio.NewScanner(os.Stdin)
	scanner.Buffer(nil, 3*largestRecord)
	return scanner
}

func number(text string) int64 {
	parsed, err := strconv.ParseInt(text, 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return parsed
}

func lineOf(record *kgo.Record) lines.Record {
	line := lines.Record{
		Offset:        record.Offset,
		Timestamp:     record.Timestamp.UnixMilli(),
		LogAppendTime: record.Attrs.TimestampType() == 1,
		Key:           record.Key,
		Value:         record.Value,
	}
	for _, header := range record.Headers {
		line.Headers = append(line.Headers, lines.Header{Key: header.Key, Value: header.Value})
	}
	return line
}

// --- read

type reader struct {
	client *kgo.Client
	output *bufio.Writer
	next   map[lines.Place]int64
	paused map[lines.Place]bool
}

func read(bootstrap kgo.Opt, arguments []string, output *bufio.Writer) error {
	isolation := kgo.ReadUncommitted()
	if arguments[1] == "read_committed" {
		isolation = kgo.ReadCommitted()
	}
	client, err := kgo.NewClient(
		bootstrap,
		kgo.ConsumerGroup(arguments[0]),
		kgo.FetchIsolationLevel(isolation),
		kgo.FetchMaxPartitionBytes(int32(number(arguments[2]))),
		kgo.ConsumeTopics(arguments[3:]...),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
		kgo.DisableAutoCommit(),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	reader := reader{client, output, make(map[lines.Place]int64), make(map[lines.Place]bool)}
	orders := input()
	for orders.Scan() {
		word, numbers, err := lines.Order(orders.Text())
		if err != nil {
			return err
		}
		switch word {
		case "read":
			err = reader.read(numbers)
		case "seek":
			reader.seek(numbers)
		case "times":
			err = reader.times(numbers)
		default:
			err = fmt.Errorf("what is %q?", word)
		}
		if err != nil {
			return err
		}
		fmt.Fprintln(output, ".")
		if err := output.Flush(); err != nil {
			return err
		}
	}
	return orders.Err()
}

func only(place lines.Place) map[string][]int32 {
	return map[string][]int32{place.Topic: {place.Partition}}
}

func (r *reader) read(ends map[lines.Place]int64) error {
	wanted := make(map[lines.Place]bool)
	for place, end := range ends {
		if r.next[place] < end {
			wanted[place] = true
			if r.paused[place] {
				r.client.ResumeFetchPartitions(only(place))
				delete(r.paused, place)
			}
		}
	}
	for len(wanted) > 0 {
		fetches := r.client.PollRecords(context.Background(), 1)
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			place := lines.Place{Topic: record.Topic, Partition: record.Partition}
			if r.paused[place] {
				return fmt.Errorf("%v is paused, and gave %d", place, record.Offset)
			}
			fmt.Fprintf(r.output, "%s\t%d\t%s\n", place.Topic, place.Partition, lineOf(record))
			r.next[place] = record.Offset + 1
			if record.Offset+1 >= ends[place] {
				r.client.PauseFetchPartitions(only(place))
				r.paused[place] = true
				delete(wanted, place)
			}
		}
	}
	return nil
}

func (r *reader) seek(offsets map[lines.Place]int64) {
	for place, offset := range offsets {
		to := map[int32]kgo.EpochOffset{place.Partition: {Epoch: -1, Offset: offset}}
		r.client.SetOffsets(map[string]map[int32]kgo.EpochOffset{place.Topic: to})
		r.next[place] = offset
	}
}

func (r *reader) times(times map[lines.Place]int64) error {
	request := kmsg.NewPtrListOffsetsRequest()
	request.ReplicaID = -1
	for place, timestamp := range times {
		partition := kmsg.NewListOffsetsRequestTopicPartition()
		partition.Partition, partition.Timestamp = place.Partition, timestamp
		topic := kmsg.NewListOffsetsRequestTopic()
		topic.Topic = place.Topic
		topic.Partitions = append(topic.Partitions, partition)
		request.Topics = append(request.Topics, topic)
	}
	// Each goes to the leader of its partitions: there may be several answers.
	for _, shard := range r.client.RequestSharded(context.Background(), request) {
		if shard.Err != nil {
			return shard.Err
		}
		for _, topic := range shard.Resp.(*kmsg.ListOffsetsResponse).Topics {
			for _, found := range topic.Partitions {
				if found.ErrorCode != 0 {
					return fmt.Errorf("error %d of %s %d", found.ErrorCode, topic.Topic, found.Partition)
				}
				fmt.Fprintf(r.output, "%s\t%d\t%d\t%d\n", topic.Topic, found.Partition, found.Offset, found.Timestamp)
			}
		}
	}
	return nil
}

// --- produce and fetch

var codecs = map[string]kgo.CompressionCodec{
	"none":   kgo.NoCompression(),
	"gzip":   kgo.GzipCompression(),
	"snappy": kgo.SnappyCompression(),
	"lz4":    kgo.Lz4Compression(),
	"zstd":   kgo.ZstdCompression(),
}

func produce(bootstrap kgo.Opt, arguments []string, output *bufio.Writer) error {
	options := []kgo.Opt{
		bootstrap,
		kgo.ProducerBatchCompression(codecs[arguments[2]]),
		kgo.ProducerBatchMaxBytes(largestRecord),
		kgo.RecordPartitioner(kgo.ManualPartitioner()),
	}
	if arguments[3] != "true" {
		options = append(options, kgo.DisableIdempotentWrite())
	}
	client, err := kgo.NewClient(options...)
	if err != nil {
		return err
	}
	defer client.Close()
	var records []*kgo.Record
	written := input()
	for written.Scan() {
		line, err := lines.Parse(written.Text())
		if err != nil {
			return err
		}
		record := &kgo.Record{
			Topic: arguments[0], Partition: int32(number(arguments[1])), Key: line.Key, Value: line.Value,
		}
		if line.Timestamp >= 0 {
			record.Timestamp = time.UnixMilli(line.Timestamp)
		}
		for _, header := range line.Headers {
			record.Headers = append(record.Headers, kgo.RecordHeader{Key: header.Key, Value: header.Value})
		}
		records = append(records, record)
	}
	if err := written.Err(); err != nil {
		return err
	}
	// Its own limit for the delivery of a record counts from the record's timestamp.
	limited, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for _, result := range client.ProduceSync(limited, records...) {
		if result.Err != nil {
			return result.Err
		}
		fmt.Fprintln(output, result.Record.Offset)
	}
	return nil
}

func fetch(bootstrap kgo.Opt, arguments []string, output *bufio.Writer) error {
	start := kgo.NewOffset().At(number(arguments[2]))
	client, err := kgo.NewClient(bootstrap, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{
		arguments[0]: {int32(number(arguments[1])): start},
	}))
	if err != nil {
		return err
	}
	defer client.Close()
	limited, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for left := number(arguments[3]); left > 0; {
		fetches := client.PollRecords(limited, int(left))
		if err := fetches.Err(); err != nil {
			return err
		}
		for _, record := range fetches.Records() {
			fmt.Fprintln(output, lineOf(record))
			left--
		}
	}
	return nil
}

// follow reads partition 0 until it is told to stop, with so many bytes at most in an answer.
func follow(bootstrap kgo.Opt, arguments []string, output *bufio.Writer) error {
	most := int32(number(arguments[2]))
	start := map[int32]kgo.Offset{0: kgo.NewOffset().At(number(arguments[1]))}
	client, err := kgo.NewClient(
		bootstrap,
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{arguments[0]: start}),
		kgo.FetchMaxBytes(most),
		kgo.FetchMaxPartitionBytes(most),
		kgo.ConsumeResetOffset(kgo.NoResetOffset()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	stopped, stop := context.WithCancel(context.Background())
	go func() {
		input().Scan()
		stop()
	}()
	for stopped.Err() == nil {
		fetches := client.PollFetches(stopped)
		if stopped.Err() == nil {
			if err := fetches.Err(); err != nil {
				return err
			}
		}
		for _, record := range fetches.Records() {
			fmt.Fprintln(output, record.Offset)
		}
	}
	fmt.Fprintln(output, ".")
	return nil
}

// --- transactions

func transact(bootstrap kgo.Opt, id string, output *bufio.Writer) error {
	client, err := kgo.NewClient(bootstrap, kgo.TransactionalID(id))
	if err != nil {
		return err
	}
	defer client.Close()
	if err := client.BeginTransaction(); err != nil {
		fmt.Fprintln(output, err)
		return nil
	}
	limited, cancel := context.WithTimeout(context.Background(), 60*time.Second)
	defer cancel()
	_, _, err = client.ProducerID(limited)
	if err == nil {
		fmt.Fprintln(output, "begun")
		return nil
	}
	fmt.Fprintln(output, err)
	return nil
}
