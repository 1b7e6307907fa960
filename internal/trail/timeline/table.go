package timeline

import (
	"math"
	"slices"
	"time"
)

// row is an entry in memory: 32 bytes. Names are places in table.names, text and length
// the place of the sentence in the file.
type row struct {
	Time   int64 // Unix, in ns
	Text   int64
	Length uint16
	Names  [columns]uint16
	Levels levels
	Flags  flags
}

// The columns of a row that are names. A filter looks at them in this order: those that leave the fewest
// rows come first.
const (
	ofEnvironment = iota
	ofSubject
	ofKind
	ofProject
	ofCause
	ofActor
	columns // how many there are
)

// levels are a severity and a direction, four bits each.
type levels uint8

func levelsOf(severity, direction uint8) levels { return levels(severity<<4 | direction) }

func (l levels) severity() uint8  { return uint8(l >> 4) }
func (l levels) direction() uint8 { return uint8(l & 0xf) }

// flags of a row.
type flags uint8

const (
	isMissing    flags = 1 << iota // no entry can be read there
	isState                        // it shows a setting's state
	needsReview                    // it records a change, or a loss
	isAnnotation                   // it marks another entry as reviewed
)

// chunkRows are kept together, so a growing table is not copied.
const chunkRows = 1 << 14

// table is the rows of an index. The keeper alone adds to it; a copy stays valid for
// readers, except for reviewed.
type table struct {
	chunks   []*[chunkRows]row
	blocks   []*grams // of the texts of blockRows rows each
	n        int64
	names    []string
	ids      map[string]uint16 // of names; for the keeper alone
	reviewed []uint64          // a bit for each row
	reviews  []review
}

// review: the entry By marks the entry Of as reviewed.
type review struct{ Of, By int64 }

func (t *table) at(index int64) *row { return &t.chunks[index/chunkRows][index%chunkRows] }

// add takes in a row with its text, which is not kept.
func (t *table) add(r row, text []byte) {
	if t.n%chunkRows == 0 {
		t.chunks = append(t.chunks, new([chunkRows]row))
		t.reviewed = append(t.reviewed, make([]uint64, chunkRows/64)...)
	}
	if t.n%blockRows == 0 {
		t.blocks = append(t.blocks, new(grams))
	}
	t.blocks[t.n/blockRows].add(text)
	t.n++
	*t.at(t.n - 1) = r
}

// addReview marks a row as reviewed.
func (t *table) addReview(r review) {
	if r.Of < 0 || r.Of >= r.By || r.By >= t.n {
		return // an entry can only speak of earlier ones
	}
	t.reviewed[r.Of/64] |= 1 << (r.Of % 64)
	t.reviews = append(t.reviews, r)
}

func (t *table) isReviewed(index int64) bool { return t.reviewed[index/64]&(1<<(index%64)) != 0 }

// reviewsOf are the annotations of an entry, the oldest first.
func (t *table) reviewsOf(index int64) (by []int64) {
	for _, r := range t.reviews {
		if r.Of == index {
			by = append(by, r.By)
		}
	}
	return by
}

// snapshot is a copy for a reader.
func (t *table) snapshot() table {
	s := *t
	s.reviewed = slices.Clone(t.reviewed)
	return s
}

// maxNames bounds the names; all further ones are listed as otherName.
const (
	maxNames  = math.MaxUint16
	otherName = "(other)"
	// maxActors bounds the names as long as there may be new actors: claims are free text.
	maxActors = maxNames / 2
)

// Row is an entry in a list.
type Row struct {
	// Index is the entry's place in the trail.
	Index       int64     `json:"index"`
	Time        time.Time `json:"time,omitzero"`
	Type        string    `json:"type,omitempty"`
	Project     string    `json:"project,omitempty"`
	Environment string    `json:"environment,omitempty"`
	Setting     string    `json:"setting,omitempty"` // the entry's subject
	Severity    string    `json:"severity,omitempty"`
	Direction   string    `json:"direction,omitempty"`
	Cause       string    `json:"cause,omitempty"`
	// Actor is who did it: "relay", USER@HOST of a person, with what this person claims, or
	// "unknown" for a change from outside. Several are separated by commas.
	Actor    string `json:"actor,omitempty"`
	Reviewed bool   `json:"reviewed"`
	// Summary is the entry's sentence, cut to 1,000 bytes.
	Summary string `json:"summary"`
	// Missing: no entry can be read there; it is lost or damaged.
	Missing bool `json:"missing,omitempty"`
}

const unreadableHere = "no entry can be read here: it is lost or damaged"

// show makes a row readable, without its summary.
func (t *table) show(index int64) Row {
	r := t.at(index)
	if r.Flags&isMissing != 0 {
		return Row{Index: index, Missing: true, Summary: unreadableHere}
	}
	name := func(column int) string { return t.names[r.Names[column]] }
	return Row{
		Index: index, Time: time.Unix(0, r.Time).UTC(), Type: name(ofKind), Project: name(ofProject),
		Environment: name(ofEnvironment), Setting: name(ofSubject), Cause: name(ofCause), Actor: name(ofActor),
		Severity: severities[r.Levels.severity()], Direction: directions[r.Levels.direction()], Reviewed: t.isReviewed(index),
	}
}
