package config

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestFlowLists(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		list string
		want []string // nil if refused
	}{
		{`[kafka-1:9092]`, []string{"kafka-1:9092"}},
		{`[kafka-1:9092, kafka-2:9092]`, []string{"kafka-1:9092", "kafka-2:9092"}},
		{`[kafka-1:9092,kafka-2:9092 , "kafka-3:9092"]`, []string{"kafka-1:9092", "kafka-2:9092", "kafka-3:9092"}},
		{"[kafka-1:9092, # the first\n  10.0.0.1:0x1F\n ]", []string{"kafka-1:9092", "10.0.0.1:0x1F"}},
		{`[a:b:c, '::1', true:1]`, []string{"a:b:c", "::1", "true:1"}},
		{`[https://h:1/p, 'https://h:1/p?q=r:s']`, []string{"https://h:1/p", "https://h:1/p?q=r:s"}},
		{`[https://h:1/p?q=r:s]`, nil}, // the error says to put it in quotes
		{`[kafka-1: 9092]`, nil},
		{`["kafka-1":9092]`, nil},
		{`[{kafka-1: 9092}]`, nil},
		{`[kafka-1 : 9092]`, nil},
		{`[[kafka-1:9092]]`, nil},
	} {
		for _, text := range []string{
			"sinks: [{name: k, kafka: {brokers: " + c.list + "}}]\n",
			"sinks:\n  - kafka: {brokers: " + c.list + ", mode: binary}\n",
			"sinks:\n  - kafka: {tls: {server_name: a}, brokers: " + c.list + "}\n",
			"sinks:\n  - kafka:\n     brokers: " + c.list + "\n",
		} {
			d := newDecoder(nil)
			cfg := d.document([]byte(text))
			if c.want == nil {
				assert.NotEmpty(t, d.errors, text)
				continue
			}
			require.Empty(t, d.errors, text)
			assert.Equal(t, c.want, cfg.Sinks[0].Kafka.Brokers, text)
		}
	}
}
