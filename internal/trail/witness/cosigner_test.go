package witness

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/testutil"
	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/mod/sumdb/note"
	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/config"
	"github.com/auditrelay/auditrelay/internal/testbed/testlog"
	"github.com/auditrelay/auditrelay/internal/testbed/trailtest"
	"github.com/auditrelay/auditrelay/internal/trail/audit"
	"github.com/auditrelay/auditrelay/internal/trail/proof"
)

// theWitness is a witness in this process that is reached without a network, so that tests can
// set the time.
type theWitness struct {
	http.Handler
	key Key

	mu   sync.Mutex
	away answering // under mu; answers in its place, where set
}

// answering answers a request, or fails to.
type answering func(http.ResponseWriter, *http.Request) error

func (w *theWitness) RoundTrip(r *http.Request) (*http.Response, error) {
	w.mu.Lock()
	away := w.away
	w.mu.Unlock()
	answer := httptest.NewRecorder()
	if away == nil {
		w.ServeHTTP(answer, r)
	} else if err := away(answer, r); err != nil {
		return nil, err
	}
	return answer.Result(), nil
}

func (w *theWitness) set(away answering) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.away = away
}

// says answers with a status and a text.
func says(status int, kind, text string) answering {
	return func(w http.ResponseWriter, _ *http.Request) error {
		w.Header().Set("Content-Type", kind)
		w.WriteHeader(status)
		_, err := w.Write([]byte(text))
		return err
	}
}

func refusesConnections(http.ResponseWriter, *http.Request) error {
	return errors.New("connection refused")
}

// hangs never answers.
func hangs(_ http.ResponseWriter, r *http.Request) error {
	<-r.Context().Done()
	return r.Context().Err()
}

func newPeerWitness(t *testing.T, name string, logs ...string) *theWitness {
	t.Helper()
	dir := t.TempDir()
	key, err := GenerateKey(filepath.Join(dir, "key"), name)
	require.NoError(t, err)
	require.NoError(t, Create(filepath.Join(dir, "state"), key))
	w, err := Open(filepath.Join(dir, "state"), key, logs)
	require.NoError(t, err)
	return &theWitness{Handler: NewHandler(w, slog.New(slog.DiscardHandler), prometheus.NewRegistry()), key: key}
}

// scene is a cosigner with its log.
type scene struct {
	*Cosigner
	t    *testing.T
	logs bytes.Buffer
}

func newScene(t *testing.T, quorum int, witnesses ...*theWitness) *scene {
	t.Helper()
	s := &scene{t: t}
	o := CosignOptions{
		Quorum: quorum, Patience: 10 * time.Minute,
		Logger: slog.New(slog.NewTextHandler(&s.logs, nil)), Registerer: prometheus.NewRegistry(),
	}
	for _, w := range witnesses {
		o.Witnesses = append(o.Witnesses, config.Witness{URL: "https://" + w.key.Public()[:5] + ".example.com", Key: w.key.Public()})
	}
	var err error
	s.Cosigner, err = NewCosigner(o)
	require.NoError(t, err)
	for i, w := range witnesses {
		s.peers[i].client.Transport = w
	}
	return s
}

// offer is of the first n leaves of a log that nobody else signs.
func offer(l *testlog.Log, n int64) audit.Offer {
	return audit.Offer{
		Note: l.At(n), Origin: l.Origin(), Size: n, Root: l.Root(n),
		Prove:   func(_ context.Context, old int64) ([]tlog.Hash, error) { return l.Prove(old, n), nil },
		Reaches: func(_ context.Context, size int64) (bool, error) { return size <= n, nil },
	}
}

// requireSigned wants the log's signature, and exactly these witnesses'.
func requireSigned(t *testing.T, l *testlog.Log, text []byte, by ...*theWitness) {
	t.Helper()
	verifier, err := note.NewVerifier(l.Public)
	require.NoError(t, err)
	list := []note.Verifier{verifier}
	for _, w := range by {
		v, err := proof.NewCosignatureVerifier(w.key.Public())
		require.NoError(t, err)
		list = append(list, v)
	}
	n, err := note.Open(text, note.VerifierList(list...))
	require.NoError(t, err)
	require.Len(t, n.Sigs, 1+len(by))
	require.Empty(t, n.UnverifiedSigs)
}

func TestAllWitnessesSign(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 50, "entry")
	a, b := newPeerWitness(t, "a.example.com/w", l.Public), newPeerWitness(t, "b.example.com/w", l.Public)
	s := newScene(t, 2, a, b)
	for _, n := range []int64{1, 2, 20, 20, 50} {
		text, err := s.cosign(t.Context(), offer(l, n))
		require.NoError(t, err)
		requireSigned(t, l, text, a, b)
	}
	// The next start asks the witnesses for their sizes, and offers the cosigned note again.
	text, err := s.cosign(t.Context(), offer(l, 50))
	require.NoError(t, err)
	next := newScene(t, 2, a, b)
	again := offer(l, 50)
	again.Note = text
	text, err = next.cosign(t.Context(), again)
	require.NoError(t, err)
	requireSigned(t, l, text, a, b)
	assert.Equal(t, "2 of 2 witnesses cosign, 2 are needed", next.Remark())
	assert.Empty(t, s.logs.String())
}

// If an answer was lost, or another relay asked meanwhile, the witness is ahead of what this
// process knows, and a proof from its size is accepted.
func TestCatchesUpWithTheWitness(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 50, "entry")
	a := newPeerWitness(t, "a.example.com/w", l.Public)
	mine, another := newScene(t, 1, a), newScene(t, 1, a)
	for i, n := range []int64{3, 9, 17, 30, 50} {
		s := mine
		if i%2 == 1 {
			s = another
		}
		text, err := s.cosign(t.Context(), offer(l, n))
		require.NoError(t, err)
		requireSigned(t, l, text, a)
	}
	late := offer(l, 20)
	late.Reaches = func(context.Context, int64) (bool, error) { return true, nil } // the other relay has kept 50
	_, err := mine.cosign(t.Context(), late)
	require.ErrorIs(t, err, errLater)
	assert.NotContains(t, mine.Remark(), "warning")
}

func TestADeadWitnessAlarmsAfterAHeartbeat(t *testing.T) {
	t.Parallel()
	for name, away := range map[string]answering{
		"connection refused": refusesConnections, "no answer": hangs,
		"failing": says(http.StatusInternalServerError, "text/plain", "oops"), "unknown": says(http.StatusNotFound, "text/plain", "who?"),
		"junk": says(http.StatusOK, "text/plain", "— a.example.com/w AAAA\n"), "empty": says(http.StatusOK, "", ""),
		"redirected": says(http.StatusFound, "", ""),
		"no size":    says(http.StatusConflict, SizeType, "-4\n"),
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				l := testlog.New(t, "example.com/log", 50, "entry")
				a, b := newPeerWitness(t, "a.example.com/w", l.Public), newPeerWitness(t, "b.example.com/w", l.Public)
				s := newScene(t, 2, a, b)
				_, err := s.cosign(t.Context(), offer(l, 5))
				require.NoError(t, err)
				a.set(away)
				start := time.Now()
				for ; time.Since(start) < 11*time.Minute; time.Sleep(30 * time.Second) {
					alarmed := time.Since(start) > 10*time.Minute
					text, err := s.cosign(t.Context(), offer(l, 9))
					require.Error(t, err)
					requireSigned(t, l, text, b)
					if !alarmed {
						assert.NotContains(t, s.Remark(), "warning")
						assert.NotContains(t, s.logs.String(), "level=ERROR")
					}
				}
				assert.Contains(t, s.Remark(), "warning: a quorum of witnesses is missing")
				assert.Contains(t, s.Remark(), "1 of 2 witnesses cosign, 2 are needed; a.example.com/w: ")
				assert.Equal(t, 1, strings.Count(s.logs.String(), "level=ERROR"), s.logs.String())
				assert.Equal(t, 1, strings.Count(s.logs.String(), "level=WARN"), s.logs.String())
				assert.InDelta(t, 1, testutil.ToFloat64(s.metrics.quorumMissing), 0)

				a.set(nil)
				time.Sleep(longestPause)
				text, err := s.cosign(t.Context(), offer(l, 50))
				require.NoError(t, err)
				requireSigned(t, l, text, a, b)
				assert.NotContains(t, s.Remark(), "warning")
				assert.Contains(t, s.logs.String(), "a quorum of witnesses cosigns the audit trail again")
				assert.InDelta(t, 0, testutil.ToFloat64(s.metrics.quorumMissing), 0)
			})
		})
	}
}

// While one witness is away, the others are not asked for the same signature again, and nothing
// is stored again.
func TestOnlyMissingSignaturesAreAskedForAgain(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := testlog.New(t, "example.com/log", 50, "entry")
		a, b := newPeerWitness(t, "a.example.com/w", l.Public), newPeerWitness(t, "b.example.com/w", l.Public)
		s := newScene(t, 1, a, b)
		a.set(refusesConnections)
		text, err := s.cosign(t.Context(), offer(l, 20))
		require.Error(t, err)
		requireSigned(t, l, text, b)
		b.set(refusesConnections)
		again := offer(l, 20)
		again.Again = true
		for range 10 {
			time.Sleep(time.Second)
			text, err = s.cosign(t.Context(), again)
			require.ErrorContains(t, err, "a.example.com/w")
			require.NotContains(t, err.Error(), "b.example.com/w")
			require.Nil(t, text)
		}
		a.set(nil)
		time.Sleep(longestPause)
		text, err = s.cosign(t.Context(), again)
		require.NoError(t, err)
		requireSigned(t, l, text, a, b)
		text, err = s.cosign(t.Context(), offer(l, 20)) // a heartbeat: asked for the time of now
		require.Error(t, err)
		requireSigned(t, l, text, a)
	})
}

// If a trail was set back, grown again or shown in two versions, the witness's answer raises an
// alarm at once.
func TestARefusalAlarmsAtOnce(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 30, "entry")
	for name, c := range map[string]struct {
		log    *testlog.Log
		size   int64
		reason string
	}{
		"set back":               {l, 20, "it has cosigned 30 entries, and this trail has 20"},
		"set back and grown":     {l.Fork(20).Grow(40, "another"), 45, "no part of this one"},
		"of the same size":       {l.Fork(20).Grow(10, "another"), 30, "another tree of the size 30"},
		"set back, still behind": {l.Fork(20).Grow(5, "another"), 25, "it has cosigned 30 entries, and this trail has 25"},
	} {
		for _, restarted := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				a := newPeerWitness(t, "a.example.com/w", l.Public)
				s := newScene(t, 1, a)
				_, err := s.cosign(t.Context(), offer(l, 30))
				require.NoError(t, err)
				if restarted {
					s = newScene(t, 1, a)
				}
				_, err = s.cosign(t.Context(), offer(c.log, c.size))
				require.ErrorContains(t, err, c.reason)
				assert.Equal(t, 1, strings.Count(s.logs.String(), "level=ERROR"), s.logs.String())
				assert.Contains(t, s.Remark(), "warning: a witness knows another history of the trail")
				assert.InDelta(t, 1, testutil.ToFloat64(s.metrics.refused.WithLabelValues("a.example.com/w")), 0)
			})
		}
	}
}

// A witness set back to an older state is told from a refusal: the trail is sound.
func TestAForgetfulWitnessIsNamed(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		l := testlog.New(t, "example.com/log", 50, "entry")
		a := newPeerWitness(t, "a.example.com/w", l.Public)
		s := newScene(t, 1, a)
		_, err := s.cosign(t.Context(), offer(l, 30))
		require.NoError(t, err)
		a.set(says(http.StatusConflict, SizeType, "10\n"))
		_, err = s.cosign(t.Context(), offer(l, 40))
		require.ErrorIs(t, err, errForgot)
		require.ErrorContains(t, err, "it cosigned 30 entries, and knows of 10")
		assert.NotContains(t, s.logs.String(), "another history")
		a.set(nil)
		time.Sleep(firstPause)
		_, err = s.cosign(t.Context(), offer(l, 40))
		require.NoError(t, err)
	})
}

// What a witness answers comes from a stranger: no answer crashes the relay, and none makes it
// ask forever.
func FuzzAnswers(f *testing.F) {
	f.Add(200, "text/plain", []byte("— a.example.com/w AAAA\n"))
	f.Add(409, SizeType, []byte("7\n"))
	f.Add(422, "", []byte{})
	f.Fuzz(func(t *testing.T, status int, kind string, body []byte) {
		if status < 200 || status > 599 || strings.ContainsAny(kind, "\r\n") {
			return
		}
		l := testlog.New(t, "example.com/log", 9, "entry")
		a := newPeerWitness(t, "a.example.com/w", l.Public)
		s := newScene(t, 1, a)
		asked := 0
		a.set(func(w http.ResponseWriter, r *http.Request) error {
			asked++
			return says(status, kind, string(body))(w, r)
		})
		text, err := s.cosign(t.Context(), offer(l, 9))
		require.Error(t, err)
		require.Nil(t, text)
		require.LessOrEqual(t, asked, asksPerRound)
	})
}

// A witness that signs and refuses in turn does not fill the trail, whose every entry it is asked
// to sign.
func TestAFickleWitnessIsAccusedNowAndThen(t *testing.T) {
	t.Parallel()
	l := testlog.New(t, "example.com/log", 50, "entry")
	a := newPeerWitness(t, "a.example.com/w", l.Public)
	s, trail := newScene(t, 1, a), trailtest.New(t)
	s.trail = trail
	size := int64(0)
	inTurn := func() {
		for range 10 {
			size++
			if a.set(nil); size%2 == 0 {
				a.set(says(http.StatusUnprocessableEntity, "text/plain", "no"))
			}
			s.peers[0].next = time.Time{}
			_, _ = s.cosign(t.Context(), offer(l, size))
		}
	}
	inTurn()
	assert.EqualValues(t, 2, trail.Size(), "a refusal, and that it signs again")
	_, err := trail.Append(t.Context(), audit.Entry{
		Type: audit.TypeWitnessAgreed, Project: audit.OwnProject, Subject: "witness " + a.key.Public(), Time: time.Now().Add(-2 * time.Hour),
	})
	require.NoError(t, err)
	inTurn()
	assert.EqualValues(t, 5, trail.Size(), "an hour later, a refusal again, and that it signs again")
	_, err = trail.Append(t.Context(), audit.Entry{
		Type: audit.TypeWitnessAgreed, Project: audit.OwnProject, Subject: "witness " + a.key.Public(), Time: time.Now().Add(-2 * time.Hour),
	})
	require.NoError(t, err)
	a.set(says(http.StatusUnprocessableEntity, "text/plain", "no"))
	for range 3 {
		s.peers[0].next = time.Time{}
		_, err := s.cosign(t.Context(), offer(l, 40))
		require.Error(t, err)
	}
	assert.EqualValues(t, 7, trail.Size(), "a lasting refusal is entered")
}
