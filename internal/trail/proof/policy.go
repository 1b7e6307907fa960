package proof

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	cosign "github.com/transparency-dev/formats/note"
	"golang.org/x/mod/sumdb/note"
)

// Policy says whose word is taken for a checkpoint: https://c2sp.org/tlog-policy. A
// checkpoint needs the signature of one of the logs, and cosignatures of a quorum of
// witnesses.
type Policy struct {
	Logs      []Log
	Witnesses []Witness

	quorum  group
	parties map[signerID]party
	list    []note.Verifier
}

// Log is a log trusted by a policy.
type Log struct {
	Key string // the verifier key; its name is the log's origin
	URL string // may be empty
}

// Witness is a witness known to a policy.
type Witness struct {
	Name string // within the policy only
	Key  string // the verifier key
	URL  string // may be empty
}

// group is a witness, or a group: it has witnessed if enough of its members have. The
// zero group needs nobody.
type group struct {
	name    string
	need    int
	members []group // none: it is a witness
}

// signerID tells signatures apart, as a note does.
type signerID struct {
	name string
	hash uint32
}

// party is who makes a signature.
type party struct {
	witness string // empty: a log
	key     string
	timed   bool // the signature has a time
}

// ErrQuorum marks a checkpoint signed by its log, without enough witnesses.
var ErrQuorum = errors.New("the witnesses are no quorum")

// Cosigned says who has signed a checkpoint.
type Cosigned struct {
	// Log is the verifier key of the log.
	Log string
	// Time is the time of the log's own timestamped signature; zero without one.
	Time time.Time
	// Witnesses have valid signatures, in the note's order.
	Witnesses []Cosignature
}

// Cosignature is a witness's statement: at Time, it had seen no larger tree of the log.
type Cosignature struct {
	Witness, Key string
	Time         time.Time
}

// NewPolicy makes a policy of logs and witnesses, need of them a quorum; none for 0.
func NewPolicy(logs []Log, witnesses []Witness, need int) (Policy, error) {
	return ParsePolicy(PolicyText(logs, witnesses, need))
}

// PolicyText is the file of a policy, as [NewPolicy] makes it.
func PolicyText(logs []Log, witnesses []Witness, need int) string {
	var text strings.Builder
	for _, l := range logs {
		fmt.Fprintln(&text, strings.TrimSpace("log "+l.Key+" "+l.URL))
	}
	names := ""
	for _, w := range witnesses {
		fmt.Fprintln(&text, strings.TrimSpace("witness "+w.Name+" "+w.Key+" "+w.URL))
		names += " " + w.Name
	}
	if need == 0 {
		text.WriteString("quorum none\n")
	} else {
		fmt.Fprintf(&text, "group the-quorum %d%s\nquorum the-quorum\n", need, names)
	}
	return text.String()
}

// WithLogs is the policy with these logs in place of its own.
func (p Policy) WithLogs(logs ...Log) (Policy, error) {
	made := Policy{quorum: p.quorum}
	for _, l := range logs {
		if err := made.addLog(l); err != nil {
			return Policy{}, err
		}
	}
	for _, w := range p.Witnesses {
		if err := made.addWitness(w); err != nil {
			return Policy{}, err
		}
	}
	return made, nil
}

// OpenAs opens a log's signed note under one key, as [Policy.Open] does, whose name is the log's
// origin. at is the time of its timestamped signature; zero without one.
func OpenAs(key string, signedNote []byte) (c Checkpoint, at time.Time, err error) {
	var p Policy
	if err := p.addLog(Log{Key: key}); err != nil {
		return Checkpoint{}, time.Time{}, err
	}
	c, by, err := p.Open(signedNote)
	return c, by.Time, err
}

// add makes a verifier known.
func (p *Policy) add(v note.Verifier, who party) error {
	id := signerID{v.Name(), v.KeyHash()}
	if known, taken := p.parties[id]; taken {
		return fmt.Errorf("its key is also %s", known.key)
	}
	if p.parties == nil {
		p.parties = map[signerID]party{}
	}
	p.parties[id] = who
	p.list = append(p.list, v)
	return nil
}

func (p *Policy) addLog(l Log) error {
	k, err := parseKey(l.Key)
	if err != nil {
		return err
	}
	if slices.ContainsFunc(p.Logs, func(known Log) bool { return SamePublicKey(known.Key, l.Key) }) {
		return fmt.Errorf("another log has the public key of %q", k.name)
	}
	if k.alg == algEd25519 {
		v, err := note.NewVerifier(l.Key)
		if err != nil {
			return fmt.Errorf("verifier key of %q: %w", k.name, err)
		}
		if err := p.add(v, party{key: l.Key}); err != nil {
			return err
		}
	}
	// The log's timestamped signature: of the same key, or its only one.
	v, err := NewCosignatureVerifier(l.Key)
	if err != nil {
		return err
	}
	p.Logs = append(p.Logs, l)
	return p.add(v, party{key: l.Key, timed: true})
}

func (p *Policy) addWitness(w Witness) error {
	sameKey := func(known Witness) bool { return SamePublicKey(known.Key, w.Key) }
	if slices.ContainsFunc(p.Witnesses, sameKey) {
		return fmt.Errorf("another witness has the public key of %q", w.Name)
	}
	v, err := NewCosignatureVerifier(w.Key)
	if err != nil {
		return err
	}
	p.Witnesses = append(p.Witnesses, w)
	return p.add(v, party{witness: w.Name, key: w.Key, timed: true})
}

// Open checks a signed note, and reads its checkpoint. The log's signature must be good,
// and so must each further one by a party of the policy; others are passed over. With
// [ErrQuorum] the checkpoint and its signers are returned too.
func (p Policy) Open(signedNote []byte) (Checkpoint, Cosigned, error) {
	n, err := note.Open(signedNote, note.VerifierList(p.list...))
	var unverified *note.UnverifiedNoteError
	if errors.As(err, &unverified) {
		return Checkpoint{}, Cosigned{}, errors.New("open checkpoint: no log of the policy has signed it")
	}
	if err != nil {
		return Checkpoint{}, Cosigned{}, fmt.Errorf("open checkpoint: %w", err)
	}
	c, err := ParseCheckpoint(n.Text)
	if err != nil {
		return Checkpoint{}, Cosigned{}, err
	}
	by, err := p.signers(n, c.Origin)
	if err != nil {
		return Checkpoint{}, Cosigned{}, fmt.Errorf("open checkpoint: %w", err)
	}
	if missing := p.quorum.missing(by.Witnesses); missing != "" {
		return c, by, fmt.Errorf("open checkpoint of size %d: %w: %s", c.Size, ErrQuorum, missing)
	}
	return c, by, nil
}

// signers sorts the good signatures of a note.
func (p Policy) signers(n *note.Note, origin string) (Cosigned, error) {
	var by Cosigned
	for _, s := range n.Sigs {
		who := p.parties[signerID{s.Name, s.Hash}]
		at, timed := TimeOf(s)
		switch {
		case who.timed && !timed && who.witness == "":
			return Cosigned{}, fmt.Errorf("the signature of %q has no time", s.Name)
		case who.timed && !timed: // it counts for nothing: else one witness could spoil each checkpoint
		case who.witness != "":
			by.Witnesses = append(by.Witnesses, Cosignature{who.witness, who.key, at})
		case s.Name == origin:
			k, _ := parseKey(who.key) // it was parsed before
			if !who.timed || k.alg != algEd25519 {
				by.Log = who.key
			}
			if who.timed {
				by.Time = at
			}
		}
	}
	if by.Log == "" {
		return Cosigned{}, fmt.Errorf("no log of the policy with the origin %q has signed it", clipped(origin))
	}
	return by, nil
}

// TimeOf is the time of a timestamped signature. A time before 1970 or after the year 9999 is none.
func TimeOf(s note.Signature) (at time.Time, is bool) {
	at, err := cosign.CoSigV1Timestamp(s)
	return at, err == nil && at.Unix() >= 0 && at.Unix() < 253_402_300_800
}

// missing is empty if g has witnessed, else it says whose signatures are missing.
func (g group) missing(by []Cosignature) string {
	if len(g.members) == 0 {
		if g.name == "" || slices.ContainsFunc(by, func(c Cosignature) bool { return c.Witness == g.name }) {
			return ""
		}
		return g.name
	}
	var missing []string
	for _, m := range g.members {
		if without := m.missing(by); without != "" {
			missing = append(missing, without)
		}
	}
	have := len(g.members) - len(missing)
	if have >= g.need {
		return ""
	}
	return fmt.Sprintf("%s needs %d of %d, and lacks %s", g.name, g.need, len(g.members), strings.Join(missing, ", "))
}
