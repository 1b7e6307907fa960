package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/routing/cloudevents"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
	"github.com/auditrelay/auditrelay/relay"
)

// eventsOf are the events of a log's entries, as bare bodies.
func eventsOf(t *testing.T, l *testLog, records [][]byte) (bodies [][]byte) {
	t.Helper()
	for i, record := range records {
		root, err := tlog.TreeHash(int64(i+1), l)
		require.NoError(t, err)
		body, err := audit.EventBody(audit.Recorded{Record: record}, audit.Place{
			Index: l.base + int64(i), Origin: l.key.signers[0].Name(), Leaf: proof.LeafHash(record), Size: int64(i + 1), Root: &root,
		}, math.MaxInt)
		require.NoError(t, err)
		bodies = append(bodies, body)
	}
	return bodies
}

func checkpointBody(t *testing.T, note []byte) []byte {
	t.Helper()
	c, err := proof.ReadCheckpoint(note)
	require.NoError(t, err)
	body, err := json.Marshal(map[string]any{
		"type": audit.TypeCheckpoint, "checkpoint": string(note), "origin": c.Origin, "base": proof.BaseOf(c.Origin), "size": c.Size, "root": c.Root, "time": signedAt(t, note),
	})
	require.NoError(t, err)
	return body
}

// signedAt is the time in a note of the test's logs.
func signedAt(t *testing.T, note []byte) time.Time {
	t.Helper()
	origin, _ := originIn(note)
	for _, secret := range []string{proof.TrailOf(origin), "the second secret", "another secret"} {
		p := *policy(t, 0, renamedKey(t, secret, origin).verifier)
		if _, by, err := p.Open(note); err == nil {
			return by.Time
		}
	}
	return day
}

// deliveredBody is a body as the relay delivers it: an event with all attributes.
func deliveredBody(t *testing.T, l *testLog, body []byte) relay.Event {
	t.Helper()
	var e struct {
		audit.Entry

		Size  int64
		Trail struct{ Index int64 }
	}
	require.NoError(t, json.Unmarshal(body, &e))
	id := fmt.Sprint(e.Trail.Index)
	if e.Type == audit.TypeCheckpoint {
		e.Subject, e.Project, id = audit.CheckpointSubject, audit.OwnProject, fmt.Sprintf("checkpoint-%d-7", e.Size)
	}
	return relay.Event{
		ID: audit.NameOf(l.key.verifier) + "@" + id, Source: relay.TrailSource, Type: e.Type, Subject: e.Subject,
		Project: e.Project, Environment: e.Environment, Time: e.Time, Received: e.Time, ContentType: "application/json", Body: body,
	}
}

func cloudEvent(e relay.Event) []byte { return cloudevents.AppendJSON(nil, &e) }

func checkEvents(t *testing.T, o Options, bodies ...[]byte) Report {
	t.Helper()
	r, err := Events(t.Context(), bytes.NewReader(bytes.Join(bodies, []byte("\n"))), o)
	require.NoError(t, err)
	return r
}

func TestASinksCopyGivesTheSignedRoot(t *testing.T) {
	t.Parallel()
	const n = 300
	l := newTestLog(t, "example.com/log", 0)
	all := records(0, n)
	l.add(t, all...)
	bodies := eventsOf(t, l, all)
	signed := [][]byte{checkpointBody(t, l.checkpoint(t, n)), checkpointBody(t, l.checkpoint(t, 100))}
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	whole := append(bytesOf(signed), bodies...)
	r := checkEvents(t, o, whole...)
	sound(t, r)
	assert.EqualValues(t, n, r.Entries)

	// In any order, some twice, half of them as CloudEvents, between others.
	var mixed [][]byte
	for i, body := range append(bytesOf(whole), bodies[:50]...) {
		if i%2 == 0 {
			body = cloudEvent(deliveredBody(t, l, body))
		}
		mixed = append(mixed, body, fmt.Appendf(nil, `{"action":"login","n":%d}`, i), nil)
	}
	r2 := rand.New(rand.NewPCG(1, 2))
	r2.Shuffle(len(mixed), func(i, j int) { mixed[i], mixed[j] = mixed[j], mixed[i] })
	sound(t, checkEvents(t, o, mixed...))

	// As records of the Kafka sink's mode batch, one after the other.
	var batches [][]byte
	for some := range slices.Chunk(whole, 70) {
		var b cloudevents.Batch
		for _, body := range some {
			e := deliveredBody(t, l, body)
			b.Add(&e, 1<<20)
		}
		b.Add(&relay.Event{ID: "text", Source: "/x", Type: "event_log.login", ContentType: "text/plain", Body: []byte(`a "trail" {`)}, 1<<20)
		batches = append(batches, b.Text())
	}
	sound(t, checkEvents(t, o, batches...))

	var framed [][]byte
	for _, body := range whole {
		framed = append(framed, cloudEvent(deliveredBody(t, l, body)))
	}
	for name, c := range map[string]struct {
		bodies              [][]byte
		integrity, complete []string
	}{
		"a batch is cut off": {
			append(bytesOf(batches[:4]), append(batches[4][:len(batches[4])-9:len(batches[4])-9], "\n[]\n[1, null]"...)),
			[]string{"altered: line 5 is no event: read the batch of CloudEvents: invalid JSON at byte "},
			nil,
		},
		"altered": {replaced(whole, 42, `"n":40`, `"n":41`), []string{"altered: entry 40: the event's content is not the recorded one"}, nil},
		"altered and restated": {
			replaced(replaced(whole, 42, `"n":40`, `"n":41`), 42, fmt.Sprint(leafText(record(40))), leafText(bytes.Replace(record(40), []byte(`"n":40`), []byte(`"n":41`), 1))),
			[]string{"unproven: entries 40 to 299: they, or the trees named by their events, do not give the signed root"},
			nil,
		},
		"left out": {without(whole, 42), nil, []string{
			"unsigned: entries 0 to 299: no checkpoint that the events give the root of covers them", "missing: entry 40: no event of it is here",
		}},
		"the end is gone": {whole[:2+200], nil, []string{
			"unsigned: entries 100 to 199: no checkpoint that the events give the root of covers them",
			"missing: entries 200 to 299: a checkpoint covers them, and no event of them is here",
		}},
		"an index far away": { // once a step for each entry between
			append(bytesOf(framed), cloudEvent(deliveredBody(t, l, replaced(bodies, 42, `"index":42`, `"index":1099511627776`)[42]))), // its tree says otherwise
			[]string{"altered: entry 1099511627776: its index and the size of its tree contradict each other"},
			nil,
		},
		"an index far away, of its tree too": {
			append(bytesOf(framed), cloudEvent(deliveredBody(t, l, replaced(replaced(bodies, 42, `"index":42`, `"index":1099511627775`), 42, `"size":43`, `"size":1099511627776`)[42]))),
			nil,
			[]string{"missing: entries 300 to 1099511627774: no event of it is here", "unsigned: entries 300 to 1099511627775: no checkpoint that the events give the root of covers them"},
		},
		"two histories": {
			append(bytesOf(whole), checkpointBody(t, otherCheckpoint(t, l, 150))),
			[]string{"history: a checkpoint has another root for the first 150 entries: the log has signed two histories"},
			nil,
		},
		"no json": {append(bytesOf(framed), []byte(`{"specversion"`)), []string{"altered: line 303 is no event: it is no JSON"}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := checkEvents(t, o, c.bodies...)
			if found := texts(r.Integrity); len(found) == 1 && len(c.integrity) == 1 {
				assert.Contains(t, found[0], c.integrity[0])
			} else {
				assert.Equal(t, c.integrity, found)
			}
			assert.Equal(t, c.complete, texts(r.Completeness))
		})
	}
}

func bytesOf(list [][]byte) [][]byte { return append([][]byte(nil), list...) }

func without(list [][]byte, i int) [][]byte { return append(bytesOf(list[:i]), list[i+1:]...) }

func replaced(list [][]byte, i int, before, after string) [][]byte {
	list = bytesOf(list)
	list[i] = []byte(strings.Replace(string(list[i]), before, after, 1))
	return list
}

func leafText(record []byte) string { return proof.LeafHash(record).String() }

// otherCheckpoint signs another tree under the same name.
func otherCheckpoint(t *testing.T, l *testLog, size int) []byte {
	t.Helper()
	other := &testLog{key: l.key, files: files{}}
	other.add(t, records(1000, 1000+size)...)
	return other.checkpoint(t, int64(size))
}
