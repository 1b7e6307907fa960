package main

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"

	"github.com/auditrelay/auditrelay/internal/testbed/rig"
)

// told lists the new entries, except attestations of unchanged settings, whether events
// arrive, and the relay's own runs.
func (s *stage) told(ctx context.Context) (list []entry) {
	for _, e := range s.entries(ctx, s.seen) {
		if !strings.HasSuffix(e.Type, ".checked") && !strings.HasPrefix(e.Type, "health.") && !strings.HasPrefix(e.Type, "relay.") {
			list = append(list, e)
		}
	}
	return list
}

// entries reads the trail from an index on, as a person would, with further flags or not.
func (s *stage) entries(ctx context.Context, from int64, flags ...string) (list []entry) {
	args := append([]string{"trail", "list", "--output", "json", "--limit", "10000", "--data-dir", s.relay.DataDir()}, flags...)
	out, err := exec.CommandContext(ctx, s.binary, args...).Output()
	if err != nil {
		return nil
	}
	for lines := bufio.NewScanner(bytes.NewReader(out)); lines.Scan(); {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) == nil && e.Index >= from {
			list = append(list, e)
		}
	}
	return list
}

// await waits for n new entries, and takes them all.
func (s *stage) await(ctx context.Context, n int) (list []entry) {
	err := rig.Until(ctx, patience, "the trail tells", func() bool {
		list = s.told(ctx)
		return len(list) >= n
	}, s.relay.Process())
	if err != nil {
		fmt.Println("  ", err)
	}
	for _, e := range list {
		s.seen = max(s.seen, e.Index+1)
	}
	return list
}

// expect compares the next entries with the wanted ones.
func (s *stage) expect(ctx context.Context, want ...entry) {
	got := s.await(ctx, len(want))
	for i := range max(len(want), len(got), 1) {
		w, g := "nothing", "nothing"
		if i < len(want) {
			w = want[i].row()
			s.sentences = append(s.sentences, want[i].Summary)
		}
		if i < len(got) {
			g = got[i].row()
		}
		s.compare(w, g)
	}
}

func (s *stage) compare(want, got string) {
	s.rows++
	if want == got {
		if s.verbose {
			fmt.Printf("ok       %s\n", got)
		}
		return
	}
	s.wrong++
	fmt.Printf("EXPECTED %s\nFOUND    %s\n", want, got)
}

// expectAction compares the entries of an action and of the change after it, in any order.
func (s *stage) expectAction(ctx context.Context, outcome, follows string) {
	want := map[string]bool{"action.intended": true, "action.ended " + outcome: true}
	if follows != "" {
		want["settings.changed "+follows+" relay"] = true
	}
	for _, e := range s.await(ctx, len(want)) {
		key := e.Type
		switch {
		case e.Type == "action.ended" && strings.Contains(e.Summary, outcome):
			key += " " + outcome
		case e.Type == "settings.changed":
			key += " " + e.Setting + " " + e.Cause
		}
		s.tick(want, key, e)
		s.compareAction(e)
	}
	s.left(want)
}

// expectTypes compares the types and the cause of the next entries.
func (s *stage) expectTypes(ctx context.Context, cause string, types ...string) {
	want := map[string]bool{}
	for _, t := range types {
		want[t] = true
	}
	for _, e := range s.await(ctx, len(types)) {
		key := e.Type
		if e.Cause != cause {
			key += " with another cause"
		}
		s.tick(want, key, e)
	}
	s.left(want)
}

func (s *stage) tick(want map[string]bool, key string, e entry) {
	expected := "nothing"
	if want[key] {
		expected = e.row()
		delete(want, key)
	}
	s.compare(expected, e.row())
}

func (s *stage) left(want map[string]bool) {
	for key := range want {
		s.compare(key, "nothing")
	}
}
