package loki

import (
	"strconv"
	"strings"
	"time"

	"github.com/grafana/loki/pkg/push"
)

// refusal is the text of a 400. Loki examines a push twice: the distributor leaves out entries
// that exceed a limit, and says so as "K errors like: …; …"; the ingester leaves out entries
// that are too far behind, and says so with the first ten, and how many of how many. If both
// do, only the second is reported.
//
// Source of the texts: Loki 3.7.8, pkg/validation/validate.go, pkg/util/errors.go,
// pkg/ingester/stream.go, pkg/chunkenc/interface.go.
type refusal struct {
	behind, of int       // from the ingester's text
	oldest     time.Time // the oldest time that the ingester accepts, to the second; zero if not given

	old, young kind   // from the distributor's text
	mend       string // the setting that is missing in the sink or in Loki
	labels     string // the permanent error about the stream's labels
	// doubt is set if there is more text, which does not tell which entries it is about. That they
	// exceed a limit is such a text, and rare, since the sink compares them with its own settings.
	doubt bool
}

// kind is one kind of refusal: how many there are, and the first one's text.
type kind struct {
	count int
	text  string
}

func (k *kind) add(count int, text string) {
	if k.count == 0 {
		k.text = text
	}
	k.count += count
}

// readRefusal reads the text of a 400 to a push of the stream with these labels. The labels
// come from events and could say anything, so they are removed first.
func readRefusal(text, labels string) refusal {
	text = strings.ReplaceAll(strings.TrimSpace(text), labels, "{}")
	if r, ok := readBehind(text); ok {
		return r
	}
	var r refusal
	for rest := text; rest != ""; {
		var message string
		count := 1
		if n, after, ok := cutCount(rest); ok {
			count, rest = n, after
		}
		message, rest = cutMessage(rest)
		r.read(count, message)
	}
	return r
}

// readBehind reads the ingester's text.
func readBehind(text string) (refusal, bool) {
	const total, oldest = "total ignored: ", "oldest acceptable timestamp is: "
	at := strings.LastIndex(text, total)
	if at < 0 || !strings.Contains(text, "entry too far behind") && !strings.Contains(text, "entry out of order") {
		return refusal{}, false
	}
	behind, rest, ok := cutNumber(text[at+len(total):])
	rest, ok2 := strings.CutPrefix(rest, " out of ")
	of, _, ok3 := cutNumber(rest)
	if !ok || !ok2 || !ok3 || behind > of {
		return refusal{}, false
	}
	r := refusal{behind: behind, of: of}
	if _, after, told := strings.Cut(text, oldest); told {
		stamp, _, _ := strings.Cut(after, "'")
		r.oldest, _ = time.Parse(time.RFC3339, stamp)
	}
	return r, true
}

const errorsLike = " errors like: "

// cutCount reads "K errors like: ".
func cutCount(text string) (count int, rest string, ok bool) {
	count, rest, ok = cutNumber(text)
	if !ok {
		return 0, text, false
	}
	rest, ok = strings.CutPrefix(rest, errorsLike)
	return count, rest, ok
}

// cutMessage reads up to the next "; K errors like: ".
func cutMessage(text string) (message, rest string) {
	for at := 0; ; {
		next := strings.Index(text[at:], "; ")
		if next < 0 {
			return text, ""
		}
		at += next + len("; ")
		if _, _, ok := cutCount(text[at:]); ok {
			return text[:at-len("; ")], text[at:]
		}
	}
}

// cutNumber reads a number of at most nine digits.
func cutNumber(text string) (n int, rest string, ok bool) {
	end := 0
	for end < len(text) && end < 10 && text[end] >= '0' && text[end] <= '9' {
		end++
	}
	if end == 0 || end == 10 {
		return 0, text, false
	}
	n, err := strconv.Atoi(text[:end])
	return n, text[end:], err == nil
}

// read reads one message of the distributor's.
func (r *refusal) read(count int, m string) {
	has := func(part string) bool { return strings.Contains(m, part) }
	switch {
	case has(" has timestamp too old: "):
		r.old.add(count, m)
	case has(" has timestamp too new: "):
		r.young.add(count, m)
	case has("this feature is disallowed"), has("missing required labels"), has(" label names; limit "):
		r.mend = m
	case has("label name too long"), has("label value too long"), has("has duplicate label name"), has("error parsing labels"), has("couldn't parse labels"):
		r.labels = m
	default:
		r.doubt = true
	}
}

// fate is what becomes of one entry of a push that was refused in part.
type fate struct {
	verdict
	why string // why a bad entry is bad
}

type verdict uint8

const (
	taken verdict = iota
	behind
	bad
	unsure // to be pushed again
)

// fates returns the fate of each entry of the push, in order of time. It returns nil if the
// text does not tell; otherwise it settles at least one entry.
func (r *refusal) fates(entries []push.Entry) []fate {
	switch {
	case r.doubt:
		return nil
	case r.labels != "":
		all := make([]fate, len(entries))
		for i := range all {
			all[i] = fate{bad, r.labels}
		}
		return all
	case r.of > 0:
		return r.fatesBehind(entries)
	default:
		return r.fatesInvalid(entries)
	}
}

// fatesBehind follows the ingester's text. The ingester's newest entry sets the bound, so that
// of entries sent in order the first are left out.
func (r *refusal) fatesBehind(entries []push.Entry) []fate {
	all := make([]fate, len(entries))
	before := func(i int, t time.Time) bool { return entries[i].Timestamp.Before(t) }
	told := !r.oldest.IsZero()
	if r.of == len(entries) {
		// The bound is given in seconds; the true one is up to a second later.
		n := r.behind
		if n == 0 || told && (!before(n-1, r.oldest.Add(time.Second)) || n < len(entries) && before(n, r.oldest)) {
			return nil
		}
		for i := range n {
			all[i].verdict = behind
		}
		return all
	}
	// The ingester did not get all entries: the distributor left some out without a word, or
	// gave the rest to other shards of the stream.
	for i := range all {
		all[i].verdict = unsure
		if told && before(i, r.oldest) {
			all[i].verdict = behind
		}
	}
	if len(all) == 0 || all[0].verdict != behind {
		return nil
	}
	return all
}

// fatesInvalid follows the distributor's text. Entries that are too old are the first, and those
// too new the last.
func (r *refusal) fatesInvalid(entries []push.Entry) []fate {
	refused := r.old.count + r.young.count
	if refused == 0 || refused > len(entries) {
		return nil
	}
	all := make([]fate, len(entries))
	for i := range all[:r.old.count] {
		all[i] = fate{bad, r.old.text}
	}
	for i := len(all) - r.young.count; i < len(all); i++ {
		all[i] = fate{bad, r.young.text}
	}
	return all
}
