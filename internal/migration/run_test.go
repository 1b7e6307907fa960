package migration

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/config/secret"
	"github.com/auditrelay/auditrelay/internal/testbed/workspacesim"
	"github.com/auditrelay/auditrelay/internal/workspace/management"
)

// service is the simulator's second API without a network, so that a bubble's time passes.
type service struct {
	*workspacesim.Simulator
	t      *testing.T
	before func(r *http.Request, n int) (cut, effect bool) // of the n-th request; nil: all go through
	n      int
	api    *management.Client
}

func newService(t *testing.T) *service {
	t.Helper()
	sim, err := workspacesim.New(workspacesim.Options{Projects: 1})
	require.NoError(t, err)
	s := &service{Simulator: sim, t: t}
	s.api, err = management.New(management.Options{
		BaseURL: "http://127.0.0.1:1", KeyID: workspacesim.DemoProjectID, Secret: secret.New(workspacesim.DemoProjectSecret),
		RequestsPerSecond: 1000, AtOnce: 1, HTTPClient: &http.Client{Transport: s},
	})
	require.NoError(t, err)
	return s
}

// RoundTrip implements http.RoundTripper.
func (s *service) RoundTrip(r *http.Request) (resp *http.Response, err error) {
	time.Sleep(3 * time.Millisecond)
	s.n++
	cut, effect := false, true
	if s.before != nil {
		cut, effect = s.before(r, s.n)
	}
	w := httptest.NewRecorder()
	if effect {
		func() {
			defer func() { cut = recover() != nil || cut }()
			s.Handler().ServeHTTP(w, r)
		}()
	}
	if cut {
		return nil, io.ErrUnexpectedEOF
	}
	resp = w.Result()
	resp.Request = r
	return resp, nil
}

const hash = "$2b$12$abcdefghijklmnopqrstuuABCDEFGHIJKLMNOPQRSTUVWXYZ01234"

// rowsOf makes a file with so many organizations and members, each with a password. Members come
// first in it.
func rowsOf(t *testing.T, organizations, members int) string {
	t.Helper()
	var text bytes.Buffer
	for i := range members {
		fmt.Fprintf(&text, `{"type":"member","organization_slug":"org-%d","email_address":"Person.%d@example.com","name":"P","mfa_enrolled":true,"trusted_metadata":{"a":1}}`+"\n", i%organizations, i)
		fmt.Fprintf(&text, `{"type":"password","organization_slug":"org-%d","email_address":"person.%d@example.com","hash_type":"bcrypt","hash":%q}`+"\n\n", i%organizations, i, hash)
	}
	for i := range organizations {
		fmt.Fprintf(&text, `{"type":"organization","organization_name":"Org","organization_slug":"org-%d","email_invites":"ALL_ALLOWED"}`+"\n", i)
	}
	return write(t, text.String())
}

func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "users.jsonl")
	require.NoError(t, os.WriteFile(path, []byte(text), 0o600))
	return path
}

func open(t *testing.T, path, passwords string, again bool) *File {
	t.Helper()
	f, err := Open(path, passwords, again)
	require.NoError(t, err)
	return f
}

// run runs a file as a process does.
func (s *service) run(ctx context.Context, path string, again bool) (*Result, *Run, error) {
	s.t.Helper()
	r := &Run{File: open(s.t, path, Scoped, again), API: s.api, Report: func(int, time.Duration, string) {}}
	result, err := r.Do(ctx)
	if r.File.file != nil {
		require.NoError(s.t, r.File.file.Close())
	}
	return result, r, err
}

func TestARunIsInOrderAndWithinTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := rowsOf(t, 5, 150)
		plan := open(t, path, Scoped, false).Plan
		assert.Equal(t, 305, plan.Total)
		assert.InDelta(t, 3.05, plan.Seconds, 1e-9)
		start := time.Now()
		result, run, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 305}, result.Outcomes)
		assert.Zero(t, result.Open)
		assert.Equal(t, 305, run.done)
		assert.InDelta(t, 4, time.Since(start).Seconds(), 0.5, "a second of rest, and the limit")

		seen := s.Migrated()
		assert.Len(t, seen.Rows, 305)
		assert.LessOrEqual(t, seen.Most, 100)
		assert.GreaterOrEqual(t, seen.Most, 95, "the limit is used")
		assert.Zero(t, seen.TooMany)
		assert.True(t, slices.IsSortedFunc(seen.Rows, func(a, b string) int {
			return slices.Index(Types, strings.Fields(a)[0]) - slices.Index(Types, strings.Fields(b)[0])
		}), "organizations first")

		result, _, err = s.run(t.Context(), path, true)
		require.NoError(t, err)
		assert.Equal(t, 305, result.Outcomes[Done])
		assert.Equal(t, seen.Requests, s.Migrated().Requests, "nothing is sent twice")
	})
}

// A process that follows at once keeps the rate of the one before it.
func TestARestartKeepsTheRate(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := rowsOf(t, 1, 150)
		ctx, cancel := context.WithCancel(t.Context())
		s.before = func(_ *http.Request, n int) (bool, bool) {
			if n == 90 {
				cancel()
			}
			return false, true
		}
		_, _, err := s.run(ctx, path, false)
		require.ErrorIs(t, err, ErrEarly)
		_, _, err = s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.LessOrEqual(t, s.Migrated().Most, 100)
		assert.Equal(t, 301, s.Migrated().Requests)
	})
}

// Each kind of failure, once for each row, loses nothing and does nothing twice.
func TestFailuresAndLostAnswers(t *testing.T) {
	t.Parallel()
	for _, c := range []struct {
		name   string
		faults workspacesim.Faults
	}{
		{"429", workspacesim.Faults{ErrorRates: map[int]float64{429: 0.3}}},
		{"429 with Retry-After", workspacesim.Faults{ErrorRates: map[int]float64{429: 0.1}, RetryAfter: 3 * time.Second}},
		{"500", workspacesim.Faults{ErrorRates: map[int]float64{500: 0.3}}},
		{"cut", workspacesim.Faults{CutRate: 0.3, PathContains: "s/"}},
		{"all", workspacesim.Faults{CutRate: 0.1, PathContains: "s/", ErrorRates: map[int]float64{429: 0.1, 500: 0.1}}},
	} {
		t.Run(c.name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				require.NoError(t, s.SetFaults(c.faults))
				path := rowsOf(t, 2, 60)
				result, run, err := s.run(t.Context(), path, false)
				require.NoError(t, err)
				assert.Equal(t, 122, result.Outcomes[Done]+result.Outcomes[Found], "%v", result)
				assert.Equal(t, c.faults.CutRate+c.faults.ErrorRates[500] > 0, result.Lost > 0)
				assert.Len(t, s.Migrated().Rows, 122)
				assert.LessOrEqual(t, s.Migrated().Most, 100)
				assert.Zero(t, s.Migrated().TooMany)
				refused, err := os.ReadFile(run.File.Refused())
				require.NoError(t, err)
				assert.Empty(t, string(refused))
			})
		})
	}
}

// The id of an organization was in a lost answer: its members wait until a person gives it.
func TestALostOrganization(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := rowsOf(t, 2, 4)
		s.before = func(_ *http.Request, n int) (bool, bool) { return n == 1, true }
		result, run, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 5, Unsure: 1, NotSent: 4}, result.Outcomes)
		assert.Equal(t, 5, result.Open)
		text, err := os.ReadFile(run.File.Refused())
		require.NoError(t, err)
		assert.Contains(t, string(text), `put it into the row as organization_id`)
		assert.Equal(t, 4, strings.Count(string(text), "the id of its organization, line 13, is not known"))
		assert.NotContains(t, string(text), hash)

		rows, err := os.ReadFile(path)
		require.NoError(t, err)
		mended := strings.Replace(string(rows), `"organization_slug":"org-0","email_invites"`, fmt.Sprintf(`"organization_slug":"org-0","organization_id":%q,"email_invites"`, s.Migrated().IDs["org-0"]), 1)
		require.NoError(t, os.WriteFile(path, []byte(mended), 0o600))
		result, _, err = s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 9}, result.Outcomes)
		assert.Len(t, s.Migrated().Rows, 10)
	})
}

// What the API refuses is named, mended in the file, and only that is sent again.
func TestRefusedRows(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		bad := hash[:len(hash)-3] + "BAD"
		path := write(t, `{"type":"organization","organization_name":"A","organization_slug":"a"}
{"type":"member","organization_slug":"a","email_address":"a@example.com"}
{"type":"password","organization_slug":"a","email_address":"a@example.com","hash_type":"bcrypt","hash":"`+bad+`"}
{"type":"password","organization_slug":"a","email_address":"b@example.com","hash_type":"scrypt","hash":"anything-goes-here"}
`)
		result, run, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 2, Refused: 2}, result.Outcomes)
		assert.Equal(t, map[string]int{"invalid_password_hash": 1, "member_not_found": 1}, result.Refusals)
		text, err := os.ReadFile(run.File.Refused())
		require.NoError(t, err)
		assert.Contains(t, string(text), `"line":3,"outcome":"refused","reason":"HTTP 400 invalid_password_hash: The hash [redacted] is not bcrypt."`)
		for _, file := range []string{run.File.Refused(), run.File.journal()} {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.NotContains(t, string(text), bad)
			assert.NotContains(t, string(text), "anything-goes")
		}

		_, _, err = s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, 4, s.n, "a refused row is not sent again as it is")
		_, _, err = s.run(t.Context(), path, true)
		require.NoError(t, err)
		assert.Equal(t, 6, s.n, "except where a person says so")

		rows, err := os.ReadFile(path)
		require.NoError(t, err)
		require.NoError(t, os.WriteFile(path, []byte("\n"+strings.Replace(string(rows), bad, hash, 1)), 0o600))
		result, _, err = s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 3, Refused: 1}, result.Outcomes)
		assert.Equal(t, 7, s.n)
	})
}

// A session is never sent twice, whatever is lost.
func TestSessions(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		var text strings.Builder
		for i := range 200 {
			fmt.Fprintf(&text, `{"type":"session","session_token":"secret-token-%d"}`+"\n", i)
		}
		path := write(t, text.String())
		plan := open(t, path, "", false).Plan
		assert.Equal(t, Consumer, plan.Flavour)
		s.before = func(_ *http.Request, n int) (bool, bool) { return n == 3, true }
		result, run, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 199, Unsure: 1}, result.Outcomes)
		assert.Equal(t, 1, result.Lost)
		_, _, err = s.run(t.Context(), path, true)
		require.NoError(t, err)
		assert.Equal(t, 200, s.n)
		assert.LessOrEqual(t, s.Migrated().Most, 65)
		for _, file := range []string{run.File.Refused(), run.File.journal()} {
			text, err := os.ReadFile(file)
			require.NoError(t, err)
			assert.NotContains(t, string(text), "secret-token")
			assert.NotContains(t, string(text), "Hq7", "what the API answers is a secret, too")
		}
	})
}

// A key that is refused, and a server that is not the API, end the run: no row is blamed for it.
func TestWhatNoRowIsToBlameFor(t *testing.T) {
	t.Parallel()
	for name, c := range map[string]struct {
		answer func(http.ResponseWriter)
		says   string
	}{
		"key": {func(w http.ResponseWriter) {
			w.WriteHeader(401)
			_, _ = io.WriteString(w, `{"status_code":401,"request_id":"r","error_type":"unauthorized_credentials"}`)
		}, "line 13: HTTP 401 unauthorized_credentials: Unauthorized; check --project-id"},
		"proxy": {func(w http.ResponseWriter) { w.WriteHeader(404); _, _ = io.WriteString(w, "<html>no</html>") }, "something other than the API answered"},
		"redirect": {func(w http.ResponseWriter) {
			w.Header().Set("Location", "https://evil.example.com/")
			w.WriteHeader(307)
		}, "something other than the API answered"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				s := newService(t)
				calls := 0
				s.api, _ = management.New(management.Options{
					BaseURL: "http://127.0.0.1:1", KeyID: "p", Secret: secret.New("planted-secret"), RequestsPerSecond: 1000,
					HTTPClient: &http.Client{Transport: roundTrip(func(r *http.Request) (*http.Response, error) {
						calls++
						w := httptest.NewRecorder()
						c.answer(w)
						resp := w.Result()
						resp.Request = r
						return resp, nil
					})},
				})
				path := rowsOf(t, 1, 4)
				result, _, err := s.run(t.Context(), path, false)
				require.ErrorIs(t, err, ErrEarly)
				require.ErrorContains(t, err, c.says)
				assert.Equal(t, map[Outcome]int{NotSent: 9}, result.Outcomes)
				assert.Equal(t, 1, calls)
				s = newService(t) // with the right key it goes on, and nothing was lost
				result, _, err = s.run(t.Context(), path, false)
				require.NoError(t, err)
				assert.Equal(t, 9, result.Outcomes[Done])
				assert.Zero(t, result.Lost)
			})
		})
	}
}

type roundTrip func(*http.Request) (*http.Response, error)

func (f roundTrip) RoundTrip(r *http.Request) (*http.Response, error) { return f(r) }

// An answer is lost, the API then asks to wait, and the process ends: that the row may be there is
// not forgotten over it.
func TestALostAnswerIsNotForgotten(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := rowsOf(t, 1, 1)
		ctx, cancel := context.WithCancel(t.Context())
		s.before = func(_ *http.Request, n int) (cut, effect bool) {
			if n == 3 {
				require.NoError(t, s.SetFaults(workspacesim.Faults{ErrorRates: map[int]float64{429: 1}}))
				cancel()
			}
			return n == 2, true
		}
		_, _, err := s.run(ctx, path, false)
		require.ErrorIs(t, err, ErrEarly)
		require.NoError(t, s.SetFaults(workspacesim.Faults{}))
		result, _, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		assert.Equal(t, map[Outcome]int{Done: 2, Found: 1}, result.Outcomes)
		assert.Equal(t, 1, result.Lost)
	})
}

// A process that dies before it keeps the answer for a session leaves it unsure, and is followed by
// no second call.
func TestASessionOfAKilledRun(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := write(t, `{"type":"session","session_token":"one"}`)
		_, run, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		whole, err := os.ReadFile(run.File.journal())
		require.NoError(t, err)
		lines := bytes.SplitAfter(whole, []byte("\n"))
		require.NoError(t, os.WriteFile(run.File.journal(), lines[0], 0o600))
		for range 2 {
			result, _, err := s.run(t.Context(), path, true)
			require.NoError(t, err)
			assert.Equal(t, map[Outcome]int{Unsure: 1}, result.Outcomes)
			assert.Equal(t, 1, s.n)
		}
		refused, err := os.ReadFile(run.File.Refused())
		require.NoError(t, err)
		assert.Contains(t, string(refused), "another call would make another session")
	})
}

// The journal is cut at each byte, as by a kill or a power cut. A row that was answered there is
// never sent again, and no row is missing.
func TestACrashAtEachByteOfTheJournal(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := rowsOf(t, 1, 1)
		_, run, err := s.run(t.Context(), path, false)
		require.NoError(t, err)
		journal := run.File.journal()
		whole, err := os.ReadFile(journal)
		require.NoError(t, err)
		for cut := 0; cut <= len(whole); cut += 5 {
			require.NoError(t, os.WriteFile(journal, whole[:cut], 0o600))
			answered := strings.Count(string(whole[:cut]), `"done"`)
			if cut > 0 && whole[cut-1] != '\n' && strings.Contains(lastLine(whole[:cut]), `"done"`) {
				answered--
			}
			// The service has what was sent by then, and so answers what is sent again as a duplicate.
			again := newService(t)
			again.Simulator = s.Simulator
			result, _, err := again.run(t.Context(), path, false)
			require.NoErrorf(t, err, "cut at %d", cut)
			require.LessOrEqualf(t, again.n, 3-answered, "cut at %d", cut)
			require.Equal(t, 3, result.Outcomes[Done]+result.Outcomes[Found]+result.Open)
		}
		assert.Len(t, s.Migrated().Rows, 3)
	})
}

// A disk that fills up within a line, and has room again, leaves no part of the line in the journal.
func TestALineThatWasWrittenInPart(t *testing.T) {
	t.Parallel()
	path := write(t, `{"type":"session","session_token":"t"}`+"\n")
	f := open(t, path, "", false)
	row := &Row{Type: TypeSession, line: 1, sum: nameOf(`{"type":"session","session_token":"t"}`)}
	f.note(row, answer{Outcome: sent})
	require.NoError(t, f.flush())

	f.note(row, answer{Outcome: Done})
	_, err := f.file.Write(f.pending[:len(f.pending)/2])
	require.NoError(t, err)
	require.NoError(t, f.file.Close()) // the rest cannot be written
	require.ErrorIs(t, f.flush(), os.ErrClosed)
	require.NoError(t, f.flush())
	require.NoError(t, f.file.Close())
	assert.Equal(t, Done, open(t, path, "", false).of(row).Outcome)
}

// Rows that were sent to one project are not done in another one. An id that no row got an answer
// with binds nothing.
func TestTheAnswersAreOfOneProject(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		s := newService(t)
		path := rowsOf(t, 1, 1)
		s.before = func(*http.Request, int) (bool, bool) { return true, false }
		wrong := &Run{File: open(t, path, Scoped, false), API: s.api, Project: "mistyped", Report: func(int, time.Duration, string) {}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second+50*time.Millisecond)
		defer cancel()
		_, err := wrong.Do(ctx)
		require.ErrorIs(t, err, ErrEarly)
		require.NoError(t, wrong.File.file.Close())

		s.before = nil
		right := &Run{File: open(t, path, Scoped, false), API: s.api, Project: "project-test-1", Report: wrong.Report}
		require.NoError(t, right.File.IsOf("project-test-1"))
		_, err = right.Do(t.Context())
		require.NoError(t, err)
		require.NoError(t, right.File.file.Close())
		again := open(t, path, Scoped, false)
		require.NoError(t, again.IsOf("project-test-1"))
		require.ErrorContains(t, again.IsOf("project-live-1"), "are of the project project-test-1: for project-live-1, give a copy of "+path)
	})
}

func lastLine(text []byte) string { return string(text[bytes.LastIndexByte(text, '\n')+1:]) }

func TestADamagedJournalIsNotPassedOver(t *testing.T) {
	t.Parallel()
	path := write(t, `{"type":"session","session_token":"t"}`)
	f := open(t, path, "", false)
	require.NoError(t, os.MkdirAll(f.dir, 0o700))
	for _, damage := range []string{"{\n", "x\n", `{"row":"00"}` + "\n"} {
		require.NoError(t, os.WriteFile(f.journal(), []byte(damage), 0o600))
		_, err := Open(path, "", false)
		require.ErrorContains(t, err, "line 1 of "+f.journal()+" is damaged")
	}
}

func TestProblemsOfAFile(t *testing.T) {
	t.Parallel()
	const org = `{"type":"organization","organization_name":"A","organization_slug":"a"}` + "\n"
	const member = `{"type":"member","organization_slug":"a","email_address":"Ann@example.com"}` + "\n"
	password := `{"type":"password","organization_slug":"a","email_address":"ann@example.com","hash_type":"bcrypt","hash":"` + hash + `"}` + "\n"
	for name, c := range map[string]struct{ text, passwords, says string }{
		"no organization": {member, "", `line 1: no row is an organization with the slug "a"`},
		"double email":    {org + member + strings.ToLower(member), "", "line 3: line 2 is for the same member"},
		"double slug":     {org + org, "", "line 2: line 1 is for the same organization"},
		"shared passwords": {
			org + strings.ReplaceAll(org, `"a"`, `"b"`) + password + strings.ReplaceAll(password, `"a"`, `"b"`), Shared,
			"line 4: line 3 is for the same password",
		},
		"undecided":     {org + password, "", "line 2: there are passwords: say by --passwords"},
		"no bcrypt":     {org + strings.ReplaceAll(password, "$2b$", "$3b$"), Scoped, "line 2: the hash does not look like bcrypt"},
		"type":          {`{"type":"user"}`, "", `line 1: "type" must be one of organization, member, password, session`},
		"unknown field": {`{"type":"session","session_token":"planted","nickname":"planted"}`, "", `line 1: a row of the type session has no field "nickname"`},
		"foreign field": {org + `{"type":"member","organization_slug":"a","email_address":"a@b","hash":"planted"}`, "", `has no field "hash"`},
		"missing":       {`{"type":"session"}`, "", "line 1: a row of the type session needs session_token"},
		"of nobody":     {`{"type":"member","email_address":"a@b"}`, "", "line 1: a row of the type member needs organization_slug or organization_id"},
		"twice":         {org + `{"type":"member","organization_slug":"a","organization_id":"b","email_address":"a@b"}`, "", "names its organization twice"},
		"path":          {`{"type":"member","organization_id":"../x","email_address":"a@b"}`, "", "organization_id is not one"},
		"no email":      {org + `{"type":"member","organization_slug":"a","email_address":"planted"}`, "", "line 2: email_address is not one"},
		"other kind":    {`{"type":"session","session_token":["planted"]}`, "", "line 1: it is not a row: json: cannot unmarshal array"},
		"no JSON":       {`{"type":"session","session_token":"planted`, "", "line 1: it is not a row: unexpected end of JSON input"},
		"two flavours":  {`{"type":"session","session_token":"t"}` + "\n" + org, "", "line 2: sessions without an organization are of the consumer flavour"},
	} {
		_, err := Open(write(t, c.text), c.passwords, false)
		require.ErrorContains(t, err, c.says, name)
		require.ErrorContains(t, err, "\nthese rows are wrong (the first 100 are listed); nothing is sent", name)
		assert.NotContains(t, err.Error(), "planted", name)
	}
	_, err := Open(write(t, "\n \n"), "", false)
	require.ErrorContains(t, err, "has no rows")
	_, err = Open(write(t, org+strings.Repeat("x", longestLine+1)), "", false)
	require.ErrorContains(t, err, "read line 2 of")
	_, err = Open(write(t, strings.Repeat("x\n", 1000)), "", false)
	require.ErrorContains(t, err, "\nthese rows are wrong")
	assert.Equal(t, mostProblems, strings.Count(err.Error(), "\n"), "the first ones are listed")
	open(t, write(t, org+password+strings.ReplaceAll(password, "ann@", "bob@")), Shared, false)
}

// The bodies are those of the document, and nothing more.
func TestBodies(t *testing.T) {
	t.Parallel()
	for text, want := range map[string][2]string{
		`{"type":"organization","organization_name":"A","organization_slug":"a","mfa_policy":"REQUIRED_FOR_ALL","email_allowed_domains":["x"],"email_invites":"RESTRICTED","email_jit_provisioning":"RESTRICTED"}`: {
			"/v1/b2b/organizations",
			`{"organization_name":"A","organization_slug":"a","mfa_policy":"REQUIRED_FOR_ALL","email_allowed_domains":["x"],"email_invites":"RESTRICTED","email_jit_provisioning":"RESTRICTED"}`,
		},
		`{"type":"member","organization_slug":"a","email_address":"a@b","name":"N","mfa_phone_number":"+1","mfa_enrolled":false,"trusted_metadata":{"k":[1.50]}}`: {
			"/v1/b2b/organizations/org-1/members", `{"email_address":"a@b","name":"N","mfa_phone_number":"+1","mfa_enrolled":false,"trusted_metadata":{"k":[1.50]}}`,
		},
		`{"type":"password","organization_slug":"a","email_address":"a@b","hash":"h","hash_type":"scrypt"}`: {
			"/v1/b2b/passwords/migrate", `{"email_address":"a@b","hash_type":"scrypt","hash":"h","organization_id":"org-1"}`,
		},
		`{"type":"session","organization_slug":"a","session_token":"s"}`: {"/v1/b2b/sessions/migrate", `{"session_token":"s","organization_id":"org-1"}`},
	} {
		r, err := readRow(1, []byte(text))
		require.NoError(t, err)
		organization := map[bool]string{false: "org-1"}[r.Type == TypeOrganization]
		path, body := r.request(organization)
		assert.Equal(t, want[0], path)
		assert.JSONEq(t, want[1], string(body))
	}
	r, err := readRow(1, []byte(`{"type":"session","session_token":"s"}`))
	require.NoError(t, err)
	path, body := r.request("")
	assert.Equal(t, "/v1/sessions/migrate", path)
	assert.JSONEq(t, `{"session_token":"s"}`, string(body))
	raw, err := json.Marshal(r)
	require.NoError(t, err)
	assert.JSONEq(t, `{"type":"session","session_token":"[redacted]"}`, string(raw))
}
