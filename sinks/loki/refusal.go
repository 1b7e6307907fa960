package loki

import (
	"regexp"
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
	count, from := 1, 0
	for _, at := range errorsLike.FindAllStringSubmatchIndex(text, -1) {
		if at[2] > 0 { // another message stands before it
			r.read(count, text[from:at[0]])
		}
		count, _ = strconv.Atoi(text[at[2]:at[3]]) // it has nine digits at most
		from = at[1]
	}
	if text != "" {
		r.read(count, text[from:])
	}
	return r
}

var (
	errorsLike = regexp.MustCompile(`(?:^|; )(\d{1,9}) errors like: `)
	ignored    = regexp.MustCompile(`^(\d{1,9}) out of (\d{1,9})\b`)
	acceptable = regexp.MustCompile(`oldest acceptable timestamp is: ([^']*)`)
)

// readBehind reads the ingester's text.
func readBehind(text string) (refusal, bool) {
	const total = "total ignored: "
	at := strings.LastIndex(text, total)
	if at < 0 || !strings.Contains(text, "entry too far behind") && !strings.Contains(text, "entry out of order") {
		return refusal{}, false
	}
	numbers := ignored.FindStringSubmatch(text[at+len(total):])
	if numbers == nil {
		return refusal{}, false
	}
	var r refusal
	r.behind, _ = strconv.Atoi(numbers[1]) // it has nine digits at most, and so has the other
	r.of, _ = strconv.Atoi(numbers[2])
	if stamp := acceptable.FindStringSubmatch(text); stamp != nil {
		r.oldest, _ = time.Parse(time.RFC3339, stamp[1])
	}
	return r, r.behind <= r.of
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
