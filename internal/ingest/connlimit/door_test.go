package connlimit

import (
	"bufio"
	"context"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"net/http"
	"net/netip"
	"os"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/waiting"
)

// house is a server with a door. It trusts requests for /good and holds those for
// /hold until the test ends.
type house struct {
	*Door
	t       *testing.T
	metrics *Metrics
	holding chan struct{} // a value for each held request
	held    int           // how many are
}

func open(t *testing.T, total, perAddress int) *house {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	h := &house{t: t, metrics: NewMetrics(prometheus.NewRegistry()), holding: make(chan struct{}, 100)}
	h.Door = New(l, Options{Name: "test", Total: total, PerAddress: perAddress, Metrics: h.metrics, Logger: slog.New(slog.DiscardHandler)})
	server := &http.Server{Handler: http.HandlerFunc(h.serve), ReadHeaderTimeout: time.Minute}
	h.Guard(server)
	go func() { _ = server.Serve(h) }() // until Close
	t.Cleanup(func() { _ = server.Close() })
	return h
}

func (h *house) serve(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path != "/bad" {
		Trust(r.Context())
	}
	if r.URL.Path == "/hold" {
		h.holding <- struct{}{}
		<-r.Context().Done()
	}
	w.WriteHeader(http.StatusNoContent)
}

// client is a connection from an address of this machine.
type client struct {
	net.Conn
	t *testing.T
	r *bufio.Reader
}

func (h *house) dial(from string) *client {
	h.t.Helper()
	d := net.Dialer{LocalAddr: &net.TCPAddr{IP: net.ParseIP(from)}}
	c, err := d.DialContext(h.t.Context(), "tcp", h.Addr().String())
	require.NoError(h.t, err)
	h.t.Cleanup(func() { _ = c.Close() })
	return &client{c, h.t, bufio.NewReader(c)}
}

// stranger connects, and returns when it was let in or another has gone for it.
func (h *house) stranger(from string) *client {
	h.t.Helper()
	before := h.seen()
	c := h.dial(from)
	waiting.Until(h.t, func() bool { return h.seen() > before })
	return c
}

// seen counts the connections opened and closed so far.
func (h *house) seen() float64 {
	count := testutil.ToFloat64(h.metrics.open.WithLabelValues("test"))
	for _, v := range []*prometheus.CounterVec{h.metrics.refused, h.metrics.evicted} {
		for _, reason := range []string{reasonTotal, reasonAddress} {
			count += testutil.ToFloat64(v.WithLabelValues("test", reason))
		}
	}
	return count
}

// ask makes a request and reads its answer; it reports whether there was one.
func (c *client) ask(path string) bool {
	c.t.Helper()
	if !c.send(path) {
		return false
	}
	resp, err := http.ReadResponse(c.r, nil)
	return err == nil && resp.StatusCode == http.StatusNoContent && resp.Body.Close() == nil
}

func (c *client) send(path string) bool {
	_, err := io.WriteString(c, "GET "+path+" HTTP/1.1\r\nHost: x\r\n\r\n")
	return err == nil
}

// gone waits until the server has closed the connection.
func (c *client) gone() {
	c.t.Helper()
	require.NoError(c.t, c.SetReadDeadline(time.Now().Add(time.Minute)))
	_, err := c.r.ReadByte()
	require.Error(c.t, err)
	require.NotErrorIs(c.t, err, os.ErrDeadlineExceeded, "the connection stays open")
}

// guest has an answer to a good request, and is idle.
func (h *house) guest(from string) *client {
	h.t.Helper()
	c := h.stranger(from)
	require.True(h.t, c.ask("/good"))
	h.idle()
	return c
}

// idle waits until every trusted connection is known to be idle, except those held.
func (h *house) idle() {
	h.t.Helper()
	waiting.Until(h.t, func() bool {
		h.mu.Lock()
		defer h.mu.Unlock()
		working := 0
		for c := range h.open {
			if c.stranger == nil && c.idleSince.Load() == 0 {
				working++
			}
		}
		return working == h.held
	})
}

// hold has a connection work until the test ends.
func (h *house) hold(c *client) {
	h.t.Helper()
	require.True(h.t, c.send("/hold"))
	<-h.holding
	h.held++
}

func TestACrowdOfStrangersGivesWay(t *testing.T) {
	t.Parallel()
	h := open(t, 16, 0)
	guest := h.guest("127.0.0.1")
	var crowd []*client
	for range 15 {
		crowd = append(crowd, h.stranger("127.0.0.2"))
	}
	late := h.stranger("127.0.0.3")
	crowd[0].gone()
	for i := range 20 { // a returning crowd drives out itself
		h.stranger("127.0.0.2")
		if i < 14 {
			crowd[i+1].gone()
		}
	}
	assert.True(t, late.ask("/good"), "a stranger by itself is let be")
	assert.True(t, guest.ask("/good"))
	assert.InDelta(t, 21, testutil.ToFloat64(h.metrics.evicted.WithLabelValues("test", reasonTotal)), 0)
	assert.InDelta(t, 16, testutil.ToFloat64(h.metrics.open.WithLabelValues("test")), 0)
}

func TestTheLongestIdleGivesWay(t *testing.T) {
	t.Parallel()
	h := open(t, 3, 0)
	first, second := h.guest("127.0.0.1"), h.guest("127.0.0.1")
	require.True(t, first.ask("/good")) // and so has been idle for less
	h.idle()
	worker := h.stranger("127.0.0.1")
	h.hold(worker)
	third := h.guest("127.0.0.2")
	second.gone()
	h.hold(first)
	h.hold(third)
	h.stranger("127.0.0.9").gone()
	assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.refused.WithLabelValues("test", reasonTotal)), 0, "none that is at work goes")
}

func TestOneAddressHasItsShare(t *testing.T) {
	t.Parallel()
	h := open(t, 64, 2)
	other := h.guest("127.0.0.1")
	idle := h.guest("127.0.0.2")
	busy := h.stranger("127.0.0.2")
	h.hold(busy)
	stranger := h.stranger("127.0.0.2")
	idle.gone()
	h.hold(stranger)
	h.stranger("127.0.0.2").gone()
	assert.True(t, other.ask("/good"))
	assert.True(t, h.guest("127.0.0.1").ask("/good"))
	assert.InDelta(t, 1, testutil.ToFloat64(h.metrics.refused.WithLabelValues("test", reasonAddress)), 0)
}

func TestAddresses(t *testing.T) {
	t.Parallel()
	for address, want := range map[string]string{
		"203.0.113.7":          "203.0.113.7/32",
		"::ffff:203.0.113.7":   "203.0.113.7/32",
		"2001:db8:1:2:3:4:5:6": "2001:db8:1:2::/64",
		"fe80::1%eth0":         "fe80::/64",
	} {
		a := netip.MustParseAddr(address)
		c := remote{&net.TCPAddr{IP: a.AsSlice(), Zone: a.Zone(), Port: 1}}
		assert.Equal(t, want, addressOf(c).String(), address)
	}
}

type remote struct{ address net.Addr }

func (r remote) RemoteAddr() net.Addr           { return r.address }
func (remote) LocalAddr() net.Addr              { return nil }
func (remote) Read([]byte) (int, error)         { return 0, io.EOF }
func (remote) Write(b []byte) (int, error)      { return len(b), nil }
func (remote) Close() error                     { return nil }
func (remote) SetDeadline(time.Time) error      { return nil }
func (remote) SetReadDeadline(time.Time) error  { return nil }
func (remote) SetWriteDeadline(time.Time) error { return nil }

// TestBooks runs all kinds of steps in any order, and compares the books with the open
// connections.
func TestBooks(t *testing.T) {
	t.Parallel()
	seed := uint64(time.Now().UnixNano())
	t.Logf("seed %d", seed)
	rng := rand.New(rand.NewPCG(seed, 0))
	d := New(nil, Options{Name: "test", Total: 40, PerAddress: 15, Metrics: NewMetrics(prometheus.NewRegistry()), Logger: slog.New(slog.DiscardHandler)})
	var all []*conn
	for range 20_000 {
		switch n := rng.IntN(10); {
		case n < 4 || len(all) == 0:
			from := remote{&net.TCPAddr{IP: net.IPv4(192, 0, 2, byte(min(rng.IntN(12), rng.IntN(12)))), Port: 1}}
			if c := d.admit(from); c != nil {
				all = append(all, c)
			}
		case n < 6:
			Trust(context.WithValue(t.Context(), contextKey{}, all[rng.IntN(len(all))]))
		case n < 9:
			all[rng.IntN(len(all))].setIdle(rng.IntN(2) == 0)
		default:
			i := rng.IntN(len(all))
			require.NoError(t, all[i].Close())
			all[i] = all[len(all)-1]
			all = all[:len(all)-1]
		}
		d.check(t)
	}
	for _, c := range all {
		require.NoError(t, c.Close())
	}
	assert.Empty(t, d.groups)
	assert.Zero(t, testutil.ToFloat64(d.opts.Metrics.open.WithLabelValues("test")))
}

// check compares the groups with the open connections.
func (d *Door) check(t *testing.T) {
	t.Helper()
	require.LessOrEqual(t, len(d.open), d.opts.Total)
	counts := map[*group][2]int{}
	for c := range d.open {
		n := counts[c.group]
		n[0]++
		if c.stranger != nil {
			n[1]++
		}
		counts[c.group] = n
	}
	require.Len(t, d.groups, len(counts))
	for g, n := range counts {
		require.Same(t, g, d.groups[g.from])
		require.Equal(t, n, [2]int{g.open, g.strangers.Len()})
		require.LessOrEqual(t, g.open, d.opts.PerAddress)
		require.GreaterOrEqual(t, d.largest(&group{}).strangers.Len(), n[1])
	}
}
