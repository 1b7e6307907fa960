package main

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
)

// deliver posts events to a sink's destination, as a relay.
func deliver(t *testing.T, r *receiver, relay string, batch ...string) {
	t.Helper()
	answer := httptest.NewRecorder()
	body := "[" + strings.Join(batch, ",") + "]"
	r.takes(relay)(answer, httptest.NewRequest(http.MethodPost, "/", strings.NewReader(body)))
	require.Equal(t, http.StatusNoContent, answer.Code)
}

func event(seq uint64) string {
	return fmt.Sprintf(`{"id":%q,"data":{}}`, workspacesim.EventID(loadPrefix+"0-", seq))
}

// What is missing is counted, and what came twice, apart from what may have been taken twice.
func TestWhatArrivesIsCounted(t *testing.T) {
	t.Parallel()
	r, began := newReceiver(), time.Now()
	deliver(t, r, "r1", event(0), event(1), event(3))
	deliver(t, r, "r2", event(3), event(4), event(0))
	ledgers := []workspacesim.Ledger{{Prefix: loadPrefix + "0-", Acknowledged: []workspacesim.Range{{From: 0, To: 7}}}}
	assert.EqualValues(t, 3, r.missing(ledgers), "2, 5 and 6")
	twice, pushedTwice := r.again(map[string][]workspacesim.Range{loadPrefix + "0-": {{From: 0, To: 2}}})
	assert.EqualValues(t, 1, twice)
	assert.EqualValues(t, 1, pushedTwice)
	assert.Equal(t, "r2", r.holder())
	_, moved := r.other("r1", began)
	assert.True(t, moved)
	_, moved = r.other("r2", time.Now())
	assert.False(t, moved)
}

// An entry that is delivered again is one entry, and another one about the same change is two.
func TestEntriesAreCountedByID(t *testing.T) {
	t.Parallel()
	r := newReceiver()
	of := changed{"p", "e", "rbac_policy"}
	entry := `{"id":"trail-1","data":{"type":"settings.changed","project":"p","environment":"e","subject":"rbac_policy"}}`
	deliver(t, r, "r1", entry)
	deliver(t, r, "r2", entry)
	assert.Equal(t, 1, r.entries(of))
	deliver(t, r, "r2", strings.Replace(entry, "trail-1", "trail-2", 1))
	assert.Equal(t, 2, r.entries(of))
}

// A proxy passes nothing on in the direction that is cut, until that is healed.
func TestAProxyCutsOneDirection(t *testing.T) {
	t.Parallel()
	p := newProxies()
	defer p.close()
	echo, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", p.listensAt(firstRelay, portPushes))
	require.NoError(t, err)
	defer func() { assert.NoError(t, echo.Close()) }()
	heard := make(chan string, 4)
	go func() {
		c, err := echo.Accept()
		if err != nil {
			return
		}
		buf := make([]byte, 16)
		for {
			n, err := c.Read(buf)
			if err != nil {
				return
			}
			heard <- string(buf[:n])
			_, _ = c.Write(buf[:n])
		}
	}()
	address, err := p.address(here, firstRelay, portPushes)
	require.NoError(t, err)
	c, err := (&net.Dialer{}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer func() { assert.NoError(t, c.Close()) }()
	answer := make([]byte, 3)
	say := func(text string) {
		_, err := io.WriteString(c, text)
		require.NoError(t, err)
		require.Equal(t, text, <-heard)
	}
	say("one")
	_, err = io.ReadFull(c, answer)
	require.NoError(t, err)

	p.set(firstRelay, here, fault{cut: true})
	say("two")
	require.NoError(t, c.SetReadDeadline(time.Now().Add(50*time.Millisecond)))
	_, err = c.Read(answer)
	require.Error(t, err, "the answer is held")
	heal(p)
	require.NoError(t, c.SetReadDeadline(time.Time{}))
	_, err = io.ReadFull(c, answer)
	require.NoError(t, err)
	assert.Equal(t, "two", string(answer))
}

func TestPlaysAreChosenByName(t *testing.T) {
	t.Parallel()
	all, err := choose(nil)
	require.NoError(t, err)
	assert.Len(t, all, len(plays()))
	some, err := choose([]string{"freeze", "cut"})
	require.NoError(t, err)
	assert.Equal(t, []string{"freeze", "cut"}, []string{some[0].name, some[1].name})
	_, err = choose([]string{"thaw"})
	assert.ErrorContains(t, err, `no play "thaw"`)
}
