package kafka

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"reflect"
	"strings"

	"github.com/segmentio/kafka-go"
	"github.com/segmentio/kafka-go/protocol"
	"github.com/segmentio/kafka-go/protocol/addpartitionstotxn"
	"github.com/segmentio/kafka-go/protocol/apiversions"
	"github.com/segmentio/kafka-go/protocol/createtopics"
	"github.com/segmentio/kafka-go/protocol/describeconfigs"
	"github.com/segmentio/kafka-go/protocol/endtxn"
	"github.com/segmentio/kafka-go/protocol/fetch"
	"github.com/segmentio/kafka-go/protocol/findcoordinator"
	"github.com/segmentio/kafka-go/protocol/initproducerid"
	"github.com/segmentio/kafka-go/protocol/listoffsets"
	"github.com/segmentio/kafka-go/protocol/metadata"
	"github.com/segmentio/kafka-go/protocol/produce"
	"github.com/segmentio/kafka-go/protocol/rawproduce"
	"github.com/segmentio/kafka-go/protocol/saslauthenticate"
	"github.com/segmentio/kafka-go/protocol/saslhandshake"
)

// answers are what brokers answer to the requests of the sink.
var answers = map[protocol.ApiKey]reflect.Type{
	protocol.Produce:            reflect.TypeFor[produce.Response](),
	protocol.Fetch:              reflect.TypeFor[fetch.Response](),
	protocol.ListOffsets:        reflect.TypeFor[listoffsets.Response](),
	protocol.Metadata:           reflect.TypeFor[metadata.Response](),
	protocol.FindCoordinator:    reflect.TypeFor[findcoordinator.Response](),
	protocol.SaslHandshake:      reflect.TypeFor[saslhandshake.Response](),
	protocol.ApiVersions:        reflect.TypeFor[apiversions.Response](),
	protocol.CreateTopics:       reflect.TypeFor[createtopics.Response](),
	protocol.InitProducerId:     reflect.TypeFor[initproducerid.Response](),
	protocol.AddPartitionsToTxn: reflect.TypeFor[addpartitionstotxn.Response](),
	protocol.EndTxn:             reflect.TypeFor[endtxn.Response](),
	protocol.DescribeConfigs:    reflect.TypeFor[describeconfigs.Response](),
	protocol.SaslAuthenticate:   reflect.TypeFor[saslauthenticate.Response](),
}

var errAnswer = errors.New("the broker's answer is shorter than it says: it is no Kafka broker, or its answer was damaged")

// scan passes over an answer just as kafka-go's decoder does, by the types and tags of its protocol
// packages, and finds one that is shorter than the lengths in it say. It comes first, because the
// decoder makes room for a list of any length before it reads the list: an answer of 20 bytes could
// take all of the process's memory.
type scan struct {
	rest     []byte
	version  int16
	flexible bool // lengths are varints, and each structure ends with tagged fields (KIP-482)
	short    bool
}

// check scans the answer to a request, after its length.
func check(answer []byte, key protocol.ApiKey, version int16) error {
	t := answers[key]
	if t == nil {
		return fmt.Errorf("no answer is known to the request %s", key)
	}
	s := scan{rest: answer, version: version}
	for i := range t.NumField() {
		_, tagged := s.has(t.Field(i))
		s.flexible = s.flexible || tagged
	}
	s.take(4) // the number of the request, which kafka-go compares
	s.tags()
	if s.value(t); s.short {
		return errAnswer
	}
	return nil
}

// has reports whether the answer's version has a field, and whether that stands for tagged fields. A
// tag is such as "min=v0,max=v2|min=v3,max=v3,compact".
func (s *scan) has(f reflect.StructField) (yes, tagged bool) {
	for one := range strings.SplitSeq(f.Tag.Get("kafka"), "|") {
		var first, last int16
		if _, err := fmt.Sscanf(one, "min=v%d,max=v%d", &first, &last); err == nil && first <= s.version && s.version <= last {
			tagged = strings.HasSuffix(one, ",tag")
			return !tagged, tagged
		}
	}
	return false, false
}

func (s *scan) value(t reflect.Type) {
	switch kind := t.Kind(); {
	case t == reflect.TypeFor[protocol.RecordSet]():
		s.records(s.take(s.length(4)))
	case kind == reflect.Struct:
		for i := range t.NumField() {
			if yes, _ := s.has(t.Field(i)); yes {
				s.value(t.Field(i).Type)
			}
		}
		s.tags()
	case kind == reflect.String:
		s.take(s.length(2))
	case kind == reflect.Slice && t.Elem().Kind() == reflect.Uint8:
		s.take(s.length(4))
	case kind == reflect.Slice:
		for n := s.length(4); n > 0 && !s.short; n-- {
			s.value(t.Elem())
		}
	default:
		s.take(int(t.Size())) // a number or a truth value, which has the same size there
	}
}

// take returns the next n bytes, or nothing if there are fewer.
func (s *scan) take(n int) []byte {
	if n > len(s.rest) {
		s.short = true
		return nil
	}
	taken := s.rest[:n]
	s.rest = s.rest[n:]
	return taken
}

// length reads the length of a value, which takes so many bytes if it is no varint. That of null is
// less than 0, and counts as 0.
func (s *scan) length(size int) int {
	if s.flexible {
		return max(0, s.varint()-1)
	}
	var wide [4]byte
	copy(wide[:], s.take(size))
	return max(0, int(int32(binary.BigEndian.Uint32(wide[:])))>>(8*(4-size))) //nolint:gosec // the protocol's form
}

func (s *scan) varint() int {
	n, size := binary.Uvarint(s.rest)
	if s.take(max(0, size)); size <= 0 || n > maxAnswer {
		s.short = true
		return 0
	}
	return int(n)
}

// tags passes over tagged fields. The sink's answers have none that kafka-go knows.
func (s *scan) tags() {
	if !s.flexible {
		return
	}
	for n := s.varint(); n > 0 && !s.short; n-- {
		s.varint()
		s.take(s.varint())
	}
}

// mostRecords bounds the records of one batch: kafka-go makes room for them, too.
const mostRecords = 1 << 20

// records passes over batches. The last one may be incomplete, and is not read then.
func (s *scan) records(set []byte) {
	for len(set) >= batchHeader && set[magicAt] == 2 && !s.short {
		length := int32(binary.BigEndian.Uint32(set[lengthAt:]))     //nolint:gosec // the protocol's form
		count := int32(binary.BigEndian.Uint32(set[recordCountAt:])) //nolint:gosec // the protocol's form
		if length < batchHeader-epochAt || count < 0 || count > mostRecords {
			s.short = true
			return
		}
		end := epochAt + int(length)
		if end > len(set) {
			return
		}
		s.batch(set[:end], int(count))
		set = set[end:]
	}
}

// batch passes over the records of a batch. One that grows beyond all bounds when it is unpacked
// counts as short, as kafka-go would unpack all of it.
func (s *scan) batch(b []byte, count int) {
	in := scan{rest: b[batchHeader:]}
	if codec := kafka.Compression(b[attributesAt+1] & 7).Codec(); codec != nil {
		unpacked := codec.NewReader(bytes.NewReader(in.rest))
		in.rest, _ = io.ReadAll(io.LimitReader(unpacked, maxAnswer+1)) // kafka-go tells of the error
		_ = unpacked.Close()
	}
	s.short = len(in.rest) > maxAnswer
	for ; count > 0 && !s.short; count-- {
		in.number() // its length, which kafka-go does not use
		in.take(1)
		in.number()
		in.number()
		in.take(in.number())
		in.take(in.number())
		for n := in.number(); n > 0 && !in.short; n-- {
			in.take(in.number())
			in.take(in.number())
		}
		s.short = in.short
	}
}

// number reads a number of a record. One less than 0 counts as 0.
func (s *scan) number() int {
	n, size := binary.Varint(s.rest)
	if s.take(max(0, size)); size <= 0 {
		s.short = true
	}
	return int(max(0, n))
}

// answered makes sure that an answer is about the partition of its request. Of a broker that mixes
// them up, no acknowledgement counts.
func answered(req kafka.Request, res kafka.Response) error {
	asked, ok := req.(*rawproduce.Request)
	if !ok {
		return nil
	}
	told, ok := res.(*produce.Response)
	if !ok || len(told.Topics) != 1 || len(told.Topics[0].Partitions) != 1 ||
		told.Topics[0].Topic != asked.Topics[0].Topic || told.Topics[0].Partitions[0].Partition != asked.Topics[0].Partitions[0].Partition {
		return errNotInAnswer
	}
	return nil
}
