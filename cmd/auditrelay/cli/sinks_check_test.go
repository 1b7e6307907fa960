package cli

import (
	"bytes"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"github.com/twmb/franz-go/pkg/kfake"

	"github.com/auditrelay/auditrelay/internal/testbed/natstest"
)

const (
	kafkaPassword = "kafka-horse-4"
	natsPassword  = "nats-horse-5"
)

// destinations runs a broker and a NATS server, and writes a configuration with both
// and a file as sinks, its text altered by change.
func destinations(t *testing.T, change ...string) (config string, dir string) {
	t.Helper()
	dir = t.TempDir()
	cluster, err := kfake.NewCluster(kfake.NumBrokers(1), kfake.SeedTopics(3, "events"),
		kfake.EnableSASL(), kfake.Superuser("PLAIN", "relay", kafkaPassword))
	require.NoError(t, err)
	t.Cleanup(cluster.Close)
	srv := natstest.Run(t, filepath.Join(dir, "js"), func(o *server.Options) { o.Username, o.Password = "relay", natsPassword })
	_, err = natstest.JetStream(t, srv, nats.UserInfo("relay", natsPassword)).CreateStream(t.Context(), jetstream.StreamConfig{Name: "AUDIT", Subjects: []string{"auditrelay.>"}})
	require.NoError(t, err)

	text := strings.NewReplacer(append(change, "DIR", dir, "BROKER", cluster.ListenAddrs()[0], "SERVER", srv.Addr().String(),
		"KAFKA_SECRET", kafkaPassword, "NATS_SECRET", natsPassword)...).Replace(`
data_dir: DIR/data
environments:
  - {project: shop, environment: live, credentials: [{username: push, password: push-horse-of-some-length}]}
sinks:
  - name: topic
    kafka:
      brokers: ["BROKER"]
      topic: events
      sasl: {mechanism: plain, username: relay, password: KAFKA_SECRET}
  - name: stream
    nats: {url: "nats://SERVER", username: relay, password: NATS_SECRET}
  - name: archive
    format: ocsf
    file: {path: DIR/archive/events.jsonl}
`)
	config = filepath.Join(dir, "relay.yaml")
	require.NoError(t, os.WriteFile(config, []byte(text), 0o600))
	return config, dir
}

// sinksCheck runs the command, and returns its exit code and its output.
func sinksCheck(t *testing.T, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = Program{}.Execute(t.Context(), append([]string{"sinks", "check"}, args...), &out, &errs)
	for _, secret := range []string{kafkaPassword, natsPassword, "wrong-horse"} {
		assert.NotContains(t, out.String()+errs.String(), secret)
	}
	return code, out.String(), errs.String()
}

func TestSinksCheckAllFine(t *testing.T) {
	t.Parallel()
	config, dir := destinations(t)
	code, out, errs := sinksCheck(t, "--config", config)
	require.Equal(t, ExitOK, code, out+errs)
	for _, want := range []string{
		`(?m)^SINK +WHAT +FOUND$`,
		`(?m)^topic +broker 127.0.0.1:\d+ +answers, authenticated by PLAIN$`,
		`(?m)^topic +topic events +3 partitions, 1 replicas each$`,
		`(?m)^topic +limits of topic events +max.message.bytes \d+$`,
		`(?m)^topic +batch_bytes +4194304 before compression`,
		`(?m)^topic +result +ok$`,
		`(?m)^stream +stream AUDIT +takes auditrelay.>; 1 replicas in file storage$`,
		`(?m)^stream +result +ok$`,
		`(?m)^archive +file .*events.jsonl +does not exist yet, and will be made$`,
		`(?m)^archive +format +OCSF 1.9.0$`,
		`(?m)^archive +result +ok$`,
	} {
		assert.Regexp(t, want, out)
	}
	assert.NoDirExists(t, filepath.Join(dir, "archive"))
	assert.NoDirExists(t, filepath.Join(dir, "data"))

	code, out, _ = sinksCheck(t, "archive", "--config", config, "--json")
	require.Equal(t, ExitOK, code)
	var results []checkedSink
	require.NoError(t, json.Unmarshal([]byte(out), &results))
	require.Len(t, results, 1)
	assert.Equal(t, []string{"archive", "ok", ""}, []string{results[0].Sink, results[0].Result, results[0].Error})
	assert.Len(t, results[0].Findings, 4)
}

func TestSinksCheckNamesWhatFails(t *testing.T) {
	t.Parallel()
	for name, one := range map[string]struct{ sink, old, new, want string }{
		"wrong password of Kafka": {"topic", "KAFKA_SECRET", "wrong-horse", `check sasl.username and sasl.password`},
		"wrong broker":            {"topic", "BROKER", "127.0.0.1:1", `none of 1 brokers answers, the first: broker 127.0.0.1:1: .*refused`},
		"missing topic":           {"topic", "topic: events", "topic: nowhere", `topic nowhere: .*create the topic, or set create_topic`},
		"wrong password of NATS":  {"stream", "NATS_SECRET", "wrong-horse", `Authorization Violation`},
		"wrong server":            {"stream", "nats://SERVER", "nats://127.0.0.1:1", `127.0.0.1:1: .*refused`},
		"missing stream":          {"stream", "nats: {", "nats: {subject: \"nowhere.{type}\", ", `subject nowhere\.>: no stream takes it`},
		"file below a file":       {"archive", "DIR/archive", "/dev/null", `not a directory`},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			config, _ := destinations(t, one.old, one.new)
			code, out, errs := sinksCheck(t, "--config", config)
			assert.Equal(t, ExitFailure, code)
			assert.Regexp(t, `(?m)^`+one.sink+` +result +fails: .*`+one.want, out)
			assert.Equal(t, 2, strings.Count(out, "ok\n"), "the others are fine:\n%s", out)
			assert.Empty(t, errs)
		})
	}
}

func TestSinksCheckUsage(t *testing.T) {
	t.Parallel()
	config, _ := destinations(t)
	for _, c := range []struct {
		args []string
		code int
		want string
	}{
		{[]string{"other", "--config", config}, ExitUsage, `there is no sink "other" in the configuration; it has: topic, stream, archive`},
		{nil, ExitUsage, "no configuration is named; give --config FILE, or set AUDITRELAY_CONFIG"},
		{[]string{"a", "b", "--config", config}, ExitUsage, "accepts at most 1 arg"},
		{[]string{"--config", "missing.yaml"}, ExitFailure, "open missing.yaml"},
	} {
		code, out, errs := sinksCheck(t, c.args...)
		assert.Equal(t, c.code, code, errs)
		assert.Contains(t, errs, c.want)
		assert.Empty(t, out)
	}
}
