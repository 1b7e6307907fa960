package timeline

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"time"
	"unicode/utf8"

	"github.com/auditrelay/auditrelay/internal/json/jsondiff"
)

// line is a row before it is in the table.
type line struct {
	time                                              time.Time
	kind, project, environment, subject, cause, actor string
	severity, direction                               uint8
	flags                                             flags
	reviews                                           int64  // with isAnnotation: the entry it marks
	text                                              string // its sentences as they stand in the file
}

const (
	// maxSummary bounds a sentence in a list, in bytes.
	maxSummary = 1000
	// maxFurther bounds the other sentences of an entry. They are kept to be found only.
	maxFurther = 8000
	// behindSummary ends the summary in a text with further sentences.
	behindSummary = 0
)

// textOf joins the sentences of an entry.
func textOf(summary, further string) string {
	text := strings.ReplaceAll(bounded(summary, maxSummary), "\x00", " ")
	if further != "" {
		text += "\x00" + further
	}
	return text
}

// A batch is the rows of one write: a batchHead, the new names as a JSON list, the rows with
// the places of their texts, the reviews, and the texts. Numbers are little endian. A text is the
// summary, and further sentences after a zero byte.
type batchHead struct {
	First         int64    // index of the first row
	Newest        int64    // of the newest readable entry
	Leaf          [32]byte // the hash of its leaf
	Names         uint32   // bytes
	Rows, Reviews uint32
}

const (
	rowBytes    = 32
	reviewBytes = 16
)

// encode makes a batch that continues the table's rows.
func (t *table) encode(ids map[string]uint16, lines []line, newest int64, leaf [32]byte) []byte {
	names, rows, reviews, texts := []string{}, make([]row, len(lines)), []review{}, []byte{}
	name := func(s string, limit int) uint16 {
		id, known := ids[s]
		if !known && len(ids) < limit {
			id = uint16(len(ids))
			ids[s] = id
			names = append(names, s)
		}
		return id // 0 is otherName
	}
	name(otherName, maxNames)
	for i := range lines {
		l := &lines[i]
		if rows[i].Flags = l.flags; l.flags&isMissing != 0 {
			continue
		}
		rows[i] = row{
			Time: l.time.UnixNano(), Text: int64(len(texts)), Length: uint16(len(l.text)),
			Kind: name(l.kind, maxNames-1), Project: name(l.project, maxNames-1), Environment: name(l.environment, maxNames-1),
			Subject: name(l.subject, maxNames-1), Cause: name(l.cause, maxNames-1), Actor: name(l.actor, maxActors),
			Levels: levelsOf(l.severity, l.direction), Flags: l.flags,
		}
		texts = append(texts, l.text...)
		if l.flags&isAnnotation != 0 {
			reviews = append(reviews, review{Of: l.reviews, By: t.n + int64(i)})
		}
	}
	listed := jsondiff.Encode(names)
	b, _ := binary.Append(nil, binary.LittleEndian, batchHead{t.n, newest, leaf, uint32(len(listed)), uint32(len(rows)), uint32(len(reviews))})
	b, _ = binary.Append(append(b, listed...), binary.LittleEndian, rows)
	b, _ = binary.Append(b, binary.LittleEndian, reviews)
	return append(b, texts...)
}

// bounded cuts a text.
func bounded(s string, limit int) string {
	if len(s) <= limit {
		return s
	}
	cut := limit - len("…")
	for cut > 0 && !utf8.RuneStart(s[cut]) {
		cut--
	}
	return s[:cut] + "…"
}

var errBatch = errors.New("the batch is damaged")

// apply adds a batch, whose first byte stands at offset in the file. A bad batch may
// leave some of its rows: the caller then makes the table again.
func (t *table) apply(batch []byte, offset int64) (newest int64, leaf [32]byte, err error) {
	var head batchHead
	n, err := binary.Decode(batch, binary.LittleEndian, &head)
	rest := batch[n:]
	if err != nil || head.First != t.n || int64(head.Names)+int64(head.Rows)*rowBytes+int64(head.Reviews)*reviewBytes > int64(len(rest)) {
		return 0, leaf, errBatch
	}
	var names []string
	rows, reviews := make([]row, head.Rows), make([]review, head.Reviews)
	bad := json.Unmarshal(rest[:head.Names], &names) != nil || len(t.names)+len(names) > maxNames ||
		slices.ContainsFunc(names, func(name string) bool { return len(name) > maxName })
	t.names, rest = append(t.names, names...), rest[head.Names:]
	for _, list := range []any{rows, reviews} {
		n, err = binary.Decode(rest, binary.LittleEndian, list)
		bad, rest = bad || err != nil, rest[n:]
	}
	if bad {
		return 0, leaf, errBatch
	}
	var folded []byte
	for _, r := range rows {
		if r.Flags&isMissing != 0 {
			r = row{Flags: isMissing}
		}
		if !t.isWhole(&r, len(rest)) {
			return 0, leaf, errBatch
		}
		folded = appendFolded(folded[:0], rest[r.Text:][:r.Length])
		r.Text += offset + int64(len(batch)-len(rest))
		t.add(r, folded)
	}
	for _, r := range reviews {
		t.addReview(r)
	}
	return head.Newest, head.Leaf, nil
}

// isWhole reports whether a row has names that there are, and a text among so many bytes.
func (t *table) isWhole(r *row, texts int) bool {
	return !slices.ContainsFunc([]uint16{r.Kind, r.Project, r.Environment, r.Subject, r.Cause, r.Actor}, func(id uint16) bool { return int(id) >= len(t.names) }) &&
		int(r.Levels.severity()) < len(severities) && int(r.Levels.direction()) < len(directions) &&
		r.Length <= maxSummary+1+maxFurther && 0 <= r.Text && r.Text <= int64(texts) && r.Text+int64(r.Length) <= int64(texts)
}
