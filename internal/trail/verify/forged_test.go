package verify

import (
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"runtime"
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

// copyOf is a sink's copy of a log of n entries with a checkpoint, with attributes and without.
func copyOf(t *testing.T, n int) (l *testLog, bodies [][]byte, delivered []relay.Event) {
	t.Helper()
	l = newTestLog(t, "example.com/log", 0)
	all := records(0, n)
	l.add(t, all...)
	bodies = append(eventsOf(t, l, all), checkpointBody(t, l.checkpoint(t, int64(n))))
	for _, body := range bodies {
		delivered = append(delivered, deliveredBody(t, l, body))
	}
	return l, bodies, delivered
}

// What a search goes by is not the body alone: each attribute of an entry's event is bound to
// the leaf, or to the body that the leaf covers, in every form of delivery.
func TestAForgedAttributeIsFound(t *testing.T) {
	t.Parallel()
	const n, at = 20, 7
	l, _, sound0 := copyOf(t, n)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	for name, c := range map[string]struct {
		at    int // n: the checkpoint
		forge func(all []relay.Event, e *relay.Event)
		finds string
	}{
		"nothing":       {at, func([]relay.Event, *relay.Event) {}, ""},
		"its arrival":   {at, func(_ []relay.Event, e *relay.Event) { e.Received = day.Add(time.Hour) }, "entry 7: its attribute receivedtime is "},
		"content type":  {at, func(_ []relay.Event, e *relay.Event) { e.ContentType = "application/x+json" }, "entry 7: its attribute datacontenttype is "},
		"type":          {at, func(_ []relay.Event, e *relay.Event) { e.Type = "settings.checked" }, `entry 7: its attribute type is "settings.checked"`},
		"a pushed type": {at, func(_ []relay.Event, e *relay.Event) { e.Type = "event_log.login" }, `entry 7: its attribute type is "event_log.login"`},
		"time":          {at, func(_ []relay.Event, e *relay.Event) { e.Time = e.Time.Add(time.Nanosecond) }, "entry 7: its attribute time is "},
		"subject":       {at, func(_ []relay.Event, e *relay.Event) { e.Subject = "other" }, "entry 7: its attribute subject is "},
		"no subject":    {at, func(_ []relay.Event, e *relay.Event) { e.Subject = "" }, "entry 7: its attribute subject is "},
		"project":       {at, func(_ []relay.Event, e *relay.Event) { e.Project = "other" }, "entry 7: its attribute project is "},
		"environment":   {at, func(_ []relay.Event, e *relay.Event) { e.Environment = "test" }, "entry 7: its attribute environment is "},
		"source":        {at, func(_ []relay.Event, e *relay.Event) { e.Source = "/projects/acme/environments/live" }, "entry 7: its attribute source is "},
		"id":            {at, func(_ []relay.Event, e *relay.Event) { e.ID += "0" }, "entry 7: its attribute id is "},
		"the log's name in the id": {
			at, func(_ []relay.Event, e *relay.Event) { e.ID = strings.Replace(e.ID, "example.com", "example.org", 1) },
			`entry 7: its id begins with "example.org/log+`,
		},
		"exchanged data": {at, func(all []relay.Event, e *relay.Event) { e.Body, all[8].Body = all[8].Body, e.Body }, "its attribute id is "},
		"more in its place": {
			at, func(_ []relay.Event, e *relay.Event) {
				e.Body = bytes.Replace(e.Body, []byte(`"trail":{`), []byte(`"trail":{"severity":"low",`), 1)
			},
			"its body names no place in the trail",
		},
		"more in a checkpoint": {
			n, func(_ []relay.Event, e *relay.Event) {
				e.Body = bytes.Replace(e.Body, []byte(`{"`), []byte(`{"severity":"low","`), 1)
			},
			" is no checkpoint of the trail, though its type is trail.checkpoint",
		},
		"no place in the trail": {
			at, func(_ []relay.Event, e *relay.Event) {
				e.Body, e.ID = bytes.Replace(e.Body, []byte(`"trail"`), []byte(`"other"`), 1), "x"
			},
			`the event "x" of the type "settings.changed" is none of the pushed ones, and its body names no place in the trail`,
		},
		"the checkpoint's id":      {n, func(_ []relay.Event, e *relay.Event) { e.ID = strings.Replace(e.ID, "-20-", "-21-", 1) }, "its attributes or its body are not those of the signed note"},
		"the checkpoint's arrival": {n, func(_ []relay.Event, e *relay.Event) { e.Received = e.Received.Add(1) }, "its attributes or its body are not those of the signed note"},
		"the checkpoint's size": {n, func(_ []relay.Event, e *relay.Event) {
			e.Body = bytes.Replace(e.Body, []byte(`"size":20`), []byte(`"size":21`), 1)
		}, "its attributes or its body are not those of the signed note"},
		"the checkpoint's time": {
			n, func(_ []relay.Event, e *relay.Event) {
				before, _ := json.Marshal(e.Time)
				e.Time = e.Time.Add(time.Hour)
				e.Received = e.Time
				after, _ := json.Marshal(e.Time)
				e.Body = bytes.Replace(e.Body, before, after, 1)
			},
			"a checkpoint among the events: its event is of ",
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			all := append([]relay.Event(nil), sound0...)
			c.forge(all, &all[c.at])
			var lines []byte
			var binary []Delivered
			var batch cloudevents.Batch
			for i := range all {
				lines = append(append(lines, cloudEvent(all[i])...), '\n')
				binary = append(binary, Delivered{Event: &all[i]})
				batch.Add(&all[i], 1<<20)
			}
			for form, verified := range map[string]func() (Report, error){
				"lines":  func() (Report, error) { return Events(t.Context(), bytes.NewReader(lines), o) },
				"batch":  func() (Report, error) { return Events(t.Context(), bytes.NewReader(batch.Text()), o) },
				"binary": func() (Report, error) { return EventRecords(t.Context(), all2(binary), o) },
			} {
				r, err := verified()
				require.NoError(t, err, form)
				require.Zero(t, r.Apart.Events, form)
				if c.finds == "" {
					sound(t, r)
				} else {
					assert.Contains(t, strings.Join(texts(r.Integrity), "\n"), c.finds, form)
				}
			}
		})
	}
}

func all2[T any](list []T) func(func(T, error) bool) {
	return func(yield func(T, error) bool) {
		for _, one := range list {
			if !yield(one, nil) {
				return
			}
		}
	}
}

// JSON may have a name twice, or in other letters: readers take either, and must not be told
// different things.
func TestAnAttributeThatStandsThereTwiceIsRefused(t *testing.T) {
	t.Parallel()
	l, _, delivered := copyOf(t, 3)
	for _, more := range []string{
		`"type":"settings.changed"`, `"TYPE":"settings.changed"`, `"Subject":"s"`, `"data":{}`, `"typ\u0065":"settings.changed"`, `"\u017fubject":"s"`, `"receivedtime":"2026-03-01T00:00:00Z"`,
	} {
		var lines []byte
		for i, e := range delivered {
			text := cloudEvent(e)
			if i == 1 {
				forged := e
				forged.Type, forged.Subject = "settings.checked", "other"
				text = append(bytes.TrimSuffix(cloudEvent(forged), []byte("}")), ("," + more + "}")...)
			}
			lines = append(append(lines, text...), '\n')
		}
		r, err := Events(t.Context(), bytes.NewReader(lines), Options{Policy: policy(t, 0, l.key.verifier)})
		require.NoError(t, err)
		assert.NotEmpty(t, r.Integrity.Findings, more)
	}
}

// imitations are bodies that anybody may push, made to look like the entries and the checkpoint
// of a log.
func imitations(t *testing.T, l *testLog, bodies [][]byte) map[string][]byte {
	t.Helper()
	n := len(bodies) - 1
	forged := bytes.Replace(record(7), []byte(`"n":7`), []byte(`"n":70`), 1)
	in := func(origin string, index int, record []byte, root *tlog.Hash) []byte {
		body, err := audit.EventBody(audit.Recorded{Record: record}, audit.Place{
			Index: int64(index), Origin: origin, Leaf: proof.LeafHash(record), Size: int64(index) - proof.BaseOf(origin) + 1, Root: root,
		}, math.MaxInt)
		require.NoError(t, err)
		return body
	}
	before, err := tlog.TreeHash(7, l)
	require.NoError(t, err)
	other := &testLog{key: l.key, files: files{}}
	other.add(t, append(records(0, 7), forged)...)
	after, err := tlog.TreeHash(8, other)
	require.NoError(t, err)
	stranger := newTestLog(t, "example.com/log", 0)
	stranger.key = renamedKey(t, "a stranger's secret", "example.com/log")
	stranger.add(t, records(0, 3)...)
	name := l.key.signers[0].Name()
	return map[string][]byte{
		"another entry's content":           in(name, 7, forged, &before),
		"with the root that it would give":  in(name, 7, forged, &after),
		"without a root":                    in(name, 7, forged, nil),
		"the leaf of the entry":             bytes.Replace(bodies[7], []byte(`"n":7`), []byte(`"n":8`), 1),
		"far behind the end":                in(name, 1<<39, forged, &before),
		"of a tree of another size":         bytes.Replace(bodies[7], []byte(`"size":8`), []byte(`"size":9`), 1),
		"of another log":                    in("example.net/other", 0, forged, nil),
		"of a later log of the trail":       in(fmt.Sprintf("%s/from-%d", name, n+500), n+500, forged, nil),
		"a trail that is no place":          []byte(`{"type":"hike","project":"p","subject":"s","time":"2026-03-01T00:00:00Z","trail":"to the lake"}`),
		"no trail":                          record(1000),
		"a checkpoint of a stranger":        checkpointBody(t, stranger.checkpoint(t, 3)),
		"a checkpoint that is none":         []byte(`{"type":"trail.checkpoint","checkpoint":"x"}`),
		"a checkpoint of a log without one": checkpointBody(t, newTestLog(t, "example.net/other", 0).checkpoint(t, 0)),
		"names twice":                       []byte(`{"type":"a","type":"b","trail":{},"project":"p","subject":"s","time":"2026-03-01T00:00:00Z"}`),
		"no JSON":                           []byte(`a "trail" {`),
	}
}

// A push can put any body among the bare bodies of a sink's copy. It is named apart, and
// breaks nothing; the same events with the attributes of the trail are forged ones.
func TestAPushedImitationIsNamedApart(t *testing.T) {
	t.Parallel()
	l, bodies, delivered := copyOf(t, 20)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	all := imitations(t, l, bodies)
	everything := bytesOf(bodies)
	for name, body := range all {
		everything = append(everything, body)
		r := checkEvents(t, o, append([][]byte{body}, bodies...)...)
		require.Empty(t, append(texts(r.Integrity), texts(r.Completeness)...), name)
		assert.EqualValues(t, 20, r.Entries, name)
		assert.EqualValues(t, 1, r.Apart.Events, name)

		pushed := relay.Event{ID: "1", Source: "/projects/acme/environments/live", Type: "event_log.login", Time: day, ContentType: "text/plain", Body: body}
		lines := [][]byte{cloudEvent(pushed)}
		for _, e := range delivered {
			lines = append(lines, cloudEvent(e))
		}
		sound(t, checkEvents(t, o, lines...))
		if !json.Valid(body) {
			continue
		}
		forged := relay.Event{ID: "1", Source: relay.TrailSource, Type: "settings.changed", Time: day, ContentType: "application/json", Body: body}
		assert.NotEmpty(t, checkEvents(t, o, append(lines, cloudEvent(forged))...).Integrity.Findings, name)
	}
	rand.New(rand.NewPCG(3, 4)).Shuffle(len(everything), func(i, j int) { everything[i], everything[j] = everything[j], everything[i] })
	r := checkEvents(t, o, everything...)
	require.Empty(t, append(texts(r.Integrity), texts(r.Completeness)...))
	assert.EqualValues(t, len(all), r.Apart.Events)
}

// An imitation does not stand in for an entry that was deleted or altered.
func TestAnImitationHidesNothing(t *testing.T) {
	t.Parallel()
	l, bodies, _ := copyOf(t, 20)
	o := Options{Policy: policy(t, 0, l.key.verifier)}
	for name, body := range imitations(t, l, bodies) {
		r := checkEvents(t, o, append(without(bodies, 7), body)...)
		assert.NotEmpty(t, append(texts(r.Integrity), texts(r.Completeness)...), "%s: the entry is deleted", name)
		altered := replaced(bodies, 7, `"n":7`, `"n":8`)
		r = checkEvents(t, o, append(altered, body)...)
		assert.NotEmpty(t, r.Integrity.Findings, "%s: the entry is altered", name)
	}
}

// Hostile bodies that each claim a place of their own take memory in proportion to their size.
func TestManyImitationsTakeLittleMemory(t *testing.T) {
	l, bodies, _ := copyOf(t, 3)
	line := replaced(bodies, 1, `"size":2`, `"size":%d`)[1]
	line = bytes.Replace(line, []byte(`"index":1`), []byte(`"index":%d`), 1)
	var text bytes.Buffer
	for i := range 20_000 {
		at := 1000 * (i + 1)
		fmt.Fprintf(&text, string(line)+"\n", at, at+1)
	}
	size := text.Len()
	text.Write(bytes.Join(bodies, []byte("\n")))
	all := &measured{Reader: bytes.NewReader(text.Bytes())}
	before := heap()
	report, err := Events(t.Context(), all, Options{Policy: policy(t, 0, l.key.verifier)})
	require.NoError(t, err)
	sound(t, report)
	assert.EqualValues(t, 20_000, report.Apart.Events)
	t.Logf("%d bytes kept of %d", all.heap-before, size)
	assert.Less(t, all.heap-before, int64(10*size), "size %d kept at the end of the input, where everything read counts", size)
}

// measured notes how much memory is in use at the end of what it reads.
type measured struct {
	io.Reader
	heap int64
}

func (m *measured) Read(p []byte) (int, error) {
	n, err := m.Reader.Read(p)
	if err == io.EOF {
		m.heap = max(m.heap, heap())
	}
	return n, err
}

// heap is the memory in use.
func heap() int64 {
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}
