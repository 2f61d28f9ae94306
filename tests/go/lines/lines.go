// Package lines has records as lines of text: see tests/services/clients/lines.py.
package lines

import (
	"encoding/hex"
	"fmt"
	"strconv"
	"strings"
)

type Header struct {
	Key   string
	Value []byte
}

type Record struct {
	Offset        int64
	Timestamp     int64
	LogAppendTime bool
	Key           []byte
	Value         []byte
	Headers       []Header
}

// Place is a topic and a partition of it.
type Place struct {
	Topic     string
	Partition int32
}

func field(value []byte) string {
	if value == nil {
		return "-"
	}
	return "x" + hex.EncodeToString(value)
}

func value(field string) ([]byte, error) {
	if field == "-" {
		return nil, nil
	}
	return hex.DecodeString(field[1:])
}

func (r Record) String() string {
	timestampType := "CreateTime"
	if r.LogAppendTime {
		timestampType = "LogAppendTime"
	}
	fields := []string{
		strconv.FormatInt(r.Offset, 10),
		strconv.FormatInt(r.Timestamp, 10),
		timestampType,
		field(r.Key),
		field(r.Value),
	}
	for _, header := range r.Headers {
		fields = append(fields, field([]byte(header.Key)), field(header.Value))
	}
	return strings.Join(fields, "\t")
}

// Parse reads what is to be written: offset and type of timestamp are the broker's to say.
func Parse(line string) (Record, error) {
	fields := strings.Split(line, "\t")
	if len(fields) < 5 || len(fields)%2 == 0 {
		return Record{}, fmt.Errorf("no record: %q", line)
	}
	timestamp, err := strconv.ParseInt(fields[1], 10, 64)
	if err != nil {
		return Record{}, err
	}
	record := Record{Timestamp: timestamp}
	if record.Key, err = value(fields[3]); err != nil {
		return Record{}, err
	}
	if record.Value, err = value(fields[4]); err != nil {
		return Record{}, err
	}
	for position := 5; position < len(fields); position += 2 {
		key, err := value(fields[position])
		if err != nil {
			return Record{}, err
		}
		held, err := value(fields[position+1])
		if err != nil {
			return Record{}, err
		}
		record.Headers = append(record.Headers, Header{string(key), held})
	}
	return record, nil
}

// Order is one of those that tests/services/clients/line_reader.py tells: a word, and a number for each place.
func Order(line string) (string, map[Place]int64, error) {
	words := strings.Split(line, "\t")
	numbers := make(map[Place]int64)
	for position := 1; position+2 < len(words); position += 3 {
		partition, err := strconv.ParseInt(words[position+1], 10, 32)
		if err != nil {
			return "", nil, err
		}
		number, err := strconv.ParseInt(words[position+2], 10, 64)
		if err != nil {
			return "", nil, err
		}
		numbers[Place{words[position], int32(partition)}] = number
	}
	return words[0], numbers, nil
}
