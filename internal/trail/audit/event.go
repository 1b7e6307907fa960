package audit

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"

	"golang.org/x/mod/sumdb/tlog"

	"github.com/auditrelay/auditrelay/internal/jsontext"
	tlogproof "github.com/auditrelay/auditrelay/internal/trail/proof"
)

// An audit event's body, as a sink delivers it, is the record with more members: trail is
// the [Place] of the entry, and omitted replaces the left-out parts of a large event.
// From it anyone computes the leaf, and from the leaves of all events the signed root.

// Omitted names the parts left out of a large entry's event. The trail holds the entry
// whole.
type Omitted struct {
	// RecordBytes and RecordSHA256 are of the trail's record. The leaf of a record of more
	// than 65,535 bytes is made of these two.
	RecordBytes  int    `json:"record_bytes"`
	RecordSHA256 string `json:"record_sha256"`
	// The hashes of the members left out, as canonical JSON.
	BeforeSHA256 string `json:"before_sha256,omitempty"`
	AfterSHA256  string `json:"after_sha256,omitempty"`
	DetailSHA256 string `json:"detail_sha256,omitempty"`
	// Changes counts the changes left out of the detail.
	Changes int `json:"changes,omitempty"`
}

var (
	// ErrNoEntry marks an event other than an entry of the trail, such as one of the type
	// [TypeCheckpoint].
	ErrNoEntry = errors.New("the event holds no entry of the audit trail")
	// ErrLeafOmitted marks an event without most of its record, though the record itself is
	// the leaf: it has at most 65,535 bytes, but the external server took still less. The
	// leaf's hash stands in the event: see [Place].
	ErrLeafOmitted = errors.New("the event omits the record, and names its leaf by hash only")
	// ErrNotTheRecord marks an event with another content than its leaf's.
	ErrNotTheRecord = errors.New("the event's content is not the recorded one: a sink's redaction or somebody changed it")
)

// maxEventBody bounds an event's body: a record with its further members, each number and
// letter written in its longest form.
const maxEventBody = 6 * maxRecord

// ReadEvent reads the body of an entry's event. Any JSON of equal meaning will do, since stores may
// write it in another form; but not JSON with duplicate names.
//
// The place says where the entry stands in the trail, and the hash of its leaf, as the event states
// them: good to compute the root, no proof of the content. It is nil where the event states none, and
// where the body is none of an entry's event.
//
// The leaf's data (RFC 6962) is the record, or the digest of a record of more than 65,535 bytes. The
// error is ErrNoEntry, or one about the JSON; with a place it may be ErrLeafOmitted or
// ErrNotTheRecord. The members of an event with omitted ones are vouched for by nothing: its leaf is
// the digest of the whole record.
func ReadEvent(body []byte) (place *Place, leafData []byte, err error) {
	members, err := membersOf(body)
	if err == nil {
		place, err = placeIn(members)
	}
	if err != nil {
		return nil, nil, err
	}
	leaf, err := leafOf(members)
	if err == nil && place != nil && tlog.RecordHash(leaf) != place.Leaf {
		return place, nil, fmt.Errorf("%w: entry %d has the leaf %s", ErrNotTheRecord, place.Index, place.Leaf)
	}
	return place, leaf, err
}

// membersOf gives the members of an entry's event, each canonical.
func membersOf(body []byte) (map[string]json.RawMessage, error) {
	if len(body) > maxEventBody {
		return nil, fmt.Errorf("read audit event: it has %d bytes, the limit is %d", len(body), maxEventBody)
	}
	var members map[string]json.RawMessage
	canonical, err := jsontext.Canonical(body)
	if err == nil {
		err = json.Unmarshal(canonical, &members)
	}
	if err != nil {
		return nil, fmt.Errorf("read audit event: %w", err)
	}
	var e struct{ Type, Project, Subject *string }
	if json.Unmarshal(canonical, &e) != nil || e.Type == nil || e.Project == nil || e.Subject == nil || *e.Type == TypeCheckpoint {
		return nil, ErrNoEntry
	}
	return members, nil
}

func placeIn(members map[string]json.RawMessage) (*Place, error) {
	raw, stated := members[trailMember]
	if !stated {
		return nil, nil
	}
	p := &Place{}
	if err := json.Unmarshal(raw, p); err != nil {
		return nil, fmt.Errorf("read the member %s of an audit event: %w", trailMember, err)
	}
	if p.Leaf == (tlog.Hash{}) {
		return nil, fmt.Errorf("read the member %s of an audit event: it has no leaf", trailMember)
	}
	if !bytes.Equal(raw, canonicalOf(p)) { // no leaf covers it, so nothing would vouch for more
		return nil, fmt.Errorf("read the member %s of an audit event: it has more in it than a place", trailMember)
	}
	return p, nil
}

// The members of an event's body outside the record.
const trailMember, omittedMember = "trail", "omitted"

// leafOf gives the leaf of an event with these members.
func leafOf(members map[string]json.RawMessage) ([]byte, error) {
	if raw, some := members[omittedMember]; some {
		return leafOfOmitted(raw)
	}
	delete(members, trailMember)
	return tlogproof.LeafData(canonicalOf(members)), nil
}

func leafOfOmitted(raw json.RawMessage) ([]byte, error) {
	var o Omitted
	if err := json.Unmarshal(raw, &o); err != nil {
		return nil, fmt.Errorf("read the member %s of an audit event: %w", omittedMember, err)
	}
	sum, err := hex.DecodeString(o.RecordSHA256)
	if err != nil || len(sum) != sha256.Size || hex.EncodeToString(sum) != o.RecordSHA256 || o.RecordBytes <= 0 || o.RecordBytes > maxRecord {
		return nil, fmt.Errorf("read the member %s of an audit event: record_bytes and record_sha256 are not a record's", omittedMember)
	}
	if o.RecordBytes <= tlogproof.MaxLeaf {
		return nil, fmt.Errorf("%w: the record has %d bytes", ErrLeafOmitted, o.RecordBytes)
	}
	return tlogproof.Digest{Bytes: int64(o.RecordBytes), SHA256: [sha256.Size]byte(sum)}.Leaf(), nil
}
