package main

import (
	"context"
	"crypto/hmac"
	"crypto/pbkdf2"
	"crypto/sha256"
	"crypto/sha512"
	"crypto/subtle"
	"encoding/base64"
	"errors"
	"fmt"
	"hash"
	"strconv"
	"strings"
	"time"

	"dray-tests/trust"

	"github.com/IBM/sarama"
)

const tourRecords = 10

// scramClient is what users of sarama bring along: RFC 5802, without names that need escapes.
type scramClient struct {
	hash           func() hash.Hash
	user, password string
	bare, verifier string
	steps          int
}

func (client *scramClient) Begin(user, password, _ string) error {
	client.user, client.password = user, password
	return nil
}

func (client *scramClient) Step(challenge string) (string, error) {
	client.steps++
	switch client.steps {
	case 1:
		client.bare = "n=" + client.user + ",r=" + strconv.FormatInt(time.Now().UnixNano(), 36)
		return "n,," + client.bare, nil
	case 2:
		return client.proof(challenge)
	default:
		if subtle.ConstantTimeCompare([]byte(challenge), []byte(client.verifier)) != 1 {
			return "", errors.New("the server's signature is wrong")
		}
		return "", nil
	}
}

func (client *scramClient) proof(challenge string) (string, error) {
	fields := map[string]string{}
	for _, field := range strings.Split(challenge, ",") {
		key, value, _ := strings.Cut(field, "=")
		fields[key] = value
	}
	salt, err := base64.StdEncoding.DecodeString(fields["s"])
	if err != nil {
		return "", err
	}
	iterations, err := strconv.Atoi(fields["i"])
	if err != nil {
		return "", err
	}
	salted, err := pbkdf2.Key(client.hash, client.password, salt, iterations, client.hash().Size())
	if err != nil {
		return "", err
	}
	without := "c=biws,r=" + fields["r"]
	message := client.bare + "," + challenge + "," + without
	clientKey := client.mac(salted, "Client Key")
	stored := client.hash()
	stored.Write(clientKey)
	signature := client.mac(stored.Sum(nil), message)
	for index := range signature {
		signature[index] ^= clientKey[index]
	}
	server := client.mac(client.mac(salted, "Server Key"), message)
	client.verifier = "v=" + base64.StdEncoding.EncodeToString(server)
	return without + ",p=" + base64.StdEncoding.EncodeToString(signature), nil
}

func (client *scramClient) mac(key []byte, text string) []byte {
	made := hmac.New(client.hash, key)
	made.Write([]byte(text))
	return made.Sum(nil)
}

func (client *scramClient) Done() bool { return client.steps >= 3 }

type oneToken string

func (token oneToken) Token() (*sarama.AccessToken, error) {
	return &sarama.AccessToken{Token: string(token)}, nil
}

type tourReader struct {
	seen chan struct{}
}

func (tourReader) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (tourReader) Cleanup(sarama.ConsumerGroupSession) error { return nil }
func (reader tourReader) ConsumeClaim(session sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for message := range claim.Messages() {
		session.MarkMessage(message, "")
		reader.seen <- struct{}{}
	}
	return nil
}

func secure(bootstrap, arguments []string, config *sarama.Config) error {
	topic, mechanism := arguments[0], arguments[1]
	tls, err := trust.Config(arguments[2], arguments[3])
	if err != nil {
		return err
	}
	config.Net.TLS.Enable, config.Net.TLS.Config = true, tls
	config.Net.SASL.Enable, config.Net.SASL.Version = true, sarama.SASLHandshakeV1
	config.Net.SASL.Mechanism = sarama.SASLMechanism(mechanism)
	config.Net.SASL.User, config.Net.SASL.Password = arguments[4], arguments[5]
	switch mechanism {
	case "SCRAM-SHA-256":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha256.New} }
	case "SCRAM-SHA-512":
		config.Net.SASL.SCRAMClientGeneratorFunc = func() sarama.SCRAMClient { return &scramClient{hash: sha512.New} }
	case "OAUTHBEARER":
		config.Net.SASL.TokenProvider = oneToken(arguments[5])
	}
	config.Producer.Return.Successes = true
	config.Consumer.Offsets.Initial = sarama.OffsetOldest
	client, err := sarama.NewClient(bootstrap, config)
	if err != nil {
		return err
	}
	defer client.Close()
	producer, err := sarama.NewSyncProducerFromClient(client)
	if err != nil {
		return err
	}
	for number := 0; number < tourRecords; number++ {
		message := &sarama.ProducerMessage{Topic: topic, Value: sarama.ByteEncoder{byte(number)}}
		if _, _, err := producer.SendMessage(message); err != nil {
			return err
		}
	}
	group, err := sarama.NewConsumerGroupFromClient(topic, client)
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), 30*time.Second)
	defer cancel()
	reader := tourReader{make(chan struct{})}
	ended := make(chan error, 1)
	go func() { ended <- group.Consume(ctx, []string{topic}, reader) }()
	seen := 0
	for seen < tourRecords {
		select {
		case <-reader.seen:
			seen++
		case err := <-ended:
			return fmt.Errorf("the group ended: %v", err)
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	cancel()
	partitions, err := client.Partitions(topic)
	if err != nil {
		return err
	}
	fmt.Println(seen, len(client.Brokers()), len(partitions))
	return nil
}
