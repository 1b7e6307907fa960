package app

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

func (m *mutual) count() int {
	m.mu.Lock()
	defer m.mu.Unlock()
	return len(m.shown)
}

// The heartbeat's files are those of its own connections: while they cannot be used, push credentials
// change, and the calls go on with the files before.
func TestABrokenFileOfTheHeartbeatHoldsUpNoOther(t *testing.T) {
	t.Parallel()
	first, second := newAuthority(t), newAuthority(t)
	receiver, url := newMutual(t, first)
	files := func(a *authority, name string) map[string]string {
		all := map[string]string{"push": "the-push-password-" + name, "ca.crt": pemOf(a.cert)}
		all["tls.crt"], all["tls.key"] = a.pair(name)
		return all
	}
	r, v, log := startOnFiles(t, `
ingest: {listen: "127.0.0.1:0"}
admin: {listen: "127.0.0.1:0"}
heartbeat: {url: "`+url+`", interval: 1s, tls: {ca_file: DIR/ca.crt, cert_file: DIR/tls.crt, key_file: DIR/tls.key}}
sinks:
`, files(first, "one"))
	waiting.Until(t, func() bool { return receiver.last() == "one" }, log.text.String())

	broken := files(first, "two")
	broken["ca.crt"], broken["tls.key"] = broken["ca.crt"][:100], ""
	v.put(broken)
	waiting.Until(t, func() bool { return r.pushAs("u", "the-push-password-two", 1) == 204 }, "a broken file holds up no other")
	waiting.Until(t, func() bool { return r.usable() == "0" })
	_, ready := r.get("/readyz")
	assert.Contains(t, ready, "heartbeat.tls: read CA file ")
	calls := receiver.count()
	waiting.Until(t, func() bool { return receiver.count() > calls }, "what it held before is used")
	assert.Equal(t, "one", receiver.last())

	receiver.trust(second)
	v.put(files(second, "three"))
	waiting.Until(t, func() bool { return r.usable() == "1" && receiver.last() == "three" })
	require.NoError(t, r.stop())
}
