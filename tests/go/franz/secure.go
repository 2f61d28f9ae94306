package main

import (
	"bufio"
	"context"
	"fmt"
	"time"

	"dray-tests/trust"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"
	"github.com/twmb/franz-go/pkg/sasl"
	"github.com/twmb/franz-go/pkg/sasl/oauth"
	"github.com/twmb/franz-go/pkg/sasl/plain"
	"github.com/twmb/franz-go/pkg/sasl/scram"
)

const tourRecords = 10

func mechanism(name, user, secret string) (sasl.Mechanism, error) {
	switch name {
	case "SCRAM-SHA-256":
		return scram.Auth{User: user, Pass: secret}.AsSha256Mechanism(), nil
	case "SCRAM-SHA-512":
		return scram.Auth{User: user, Pass: secret}.AsSha512Mechanism(), nil
	case "PLAIN":
		return plain.Auth{User: user, Pass: secret}.AsMechanism(), nil
	case "OAUTHBEARER":
		return oauth.Auth{Token: secret}.AsMechanism(), nil
	}
	return nil, fmt.Errorf("what is %q?", name)
}

func secure(bootstrap kgo.Opt, arguments []string, output *bufio.Writer) error {
	topic := arguments[0]
	chosen, err := mechanism(arguments[1], arguments[4], arguments[5])
	if err != nil {
		return err
	}
	config, err := trust.Config(arguments[2], arguments[3])
	if err != nil {
		return err
	}
	client, err := kgo.NewClient(
		bootstrap,
		kgo.SASL(chosen),
		kgo.DialTLSConfig(config),
		kgo.AllowAutoTopicCreation(),
		kgo.ConsumeTopics(topic),
		kgo.ConsumerGroup(topic),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()),
	)
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	for number := 0; number < tourRecords; number++ {
		record := &kgo.Record{Topic: topic, Value: []byte{byte(number)}}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	seen := 0
	for seen < tourRecords {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err(); err != nil {
			return err
		}
		seen += fetches.NumRecords()
	}
	request := kmsg.NewPtrMetadataRequest()
	wanted := kmsg.NewMetadataRequestTopic()
	wanted.Topic = &topic
	request.Topics = append(request.Topics, wanted)
	shown, err := request.RequestWith(ctx, client)
	if err != nil {
		return err
	}
	_, err = fmt.Fprintln(output, seen, len(shown.Brokers), len(shown.Topics[0].Partitions))
	return err
}
