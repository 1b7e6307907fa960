package main

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os/exec"
	"os/user"
	"strings"
)

// secondTry renames the project, and at once a second time, which the API refuses. The API
// shows the first name only after that: the change is still the person's.
func (s *stage) secondTry(ctx context.Context) error {
	fmt.Println("\na second, refused try")
	s.wire.showLate()
	if out, err := s.rename(ctx, "Ours"); err != nil {
		return fmt.Errorf("the first try: %w: %s", err, out)
	}
	s.wire.set(badRequest)
	var exit *exec.ExitError
	if out, err := s.rename(ctx, "Theirs"); !errors.As(err, &exit) {
		return fmt.Errorf("the API refused the second try, but the command succeeded: %w: %s", err, out)
	}
	s.wire.set(noFault)
	s.wire.showNow()
	return s.compareTries(ctx)
}

func (s *stage) rename(ctx context.Context, name string) (string, error) {
	return s.command(ctx, "workspace", "project", "rename", s.wire.project, name, "--yes", "--reason", "CHG-3")
}

// compareTries compares the five entries, in any order, and who they name.
func (s *stage) compareTries(ctx context.Context) error {
	me, err := user.Current()
	if err != nil {
		return err
	}
	want := map[string]int{"action.intended": 2, "action.ended done": 1, "action.ended refused": 1, "settings.changed project relay": 1}
	for _, e := range s.await(ctx, 5) {
		key := e.Type
		switch {
		case e.Type == "settings.changed":
			key += " " + e.Setting + " " + e.Cause
		case e.Type == "action.ended" && strings.Contains(e.Summary, "refused"):
			key += " refused"
		case e.Type == "action.ended" && strings.Contains(e.Summary, "done"):
			key += " done"
		}
		expected := "nothing"
		if want[key] > 0 && strings.HasPrefix(e.Actor, me.Username+"@") {
			expected = e.row() + " | " + e.Actor
		}
		want[key]--
		s.compare(expected, e.row()+" | "+e.Actor)
	}
	for key, n := range want {
		for range n {
			s.compare(key+" by "+me.Username, "nothing")
		}
	}
	return nil
}

// unreviewed expects the changes of the streaming status among those for a reviewer.
func (s *stage) unreviewed(ctx context.Context) error {
	fmt.Println("\nthe changes of the streaming status are unreviewed")
	count := func(list []entry) (n int) {
		for _, e := range list {
			if e.Type == "streaming.status_changed" {
				n++
			}
		}
		return n
	}
	all := count(s.entries(ctx, 0))
	if all == 0 {
		return errors.New("the story has no change of the streaming status")
	}
	s.compare(fmt.Sprintf("%d unreviewed", all), fmt.Sprintf("%d unreviewed", count(s.entries(ctx, 0, "--unreviewed"))))
	return nil
}

// showLate has the API show the project as it is now, until [wire.showNow], whatever is
// written.
func (w *wire) showLate() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late = true
}

func (w *wire) showNow() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.late, w.earlier = false, nil
}

// answerEarlier answers a read of the project as it was at the first read since showLate.
// A command reads it before it writes.
func (w *wire) answerEarlier(rw http.ResponseWriter, r *http.Request) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if !w.late || r.Method != http.MethodGet || !strings.HasSuffix(r.URL.Path, "/projects/"+w.project) {
		return false
	}
	if w.earlier == nil {
		shown := httptest.NewRecorder()
		w.sim.Handler().ServeHTTP(shown, r)
		w.earlier = shown.Body.Bytes()
	}
	rw.Header().Set("Content-Type", "application/json")
	_, _ = rw.Write(w.earlier)
	return true
}
