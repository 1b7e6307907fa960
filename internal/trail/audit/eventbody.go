package audit

import (
	"encoding/json"
	"fmt"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// EventContentType is the media type of the bodies of the trail's events.
const EventContentType = "application/json"

// EventBody is the body of an entry's event, in at most limit bytes: the trail's own record with the
// entry's place, so a receiver can compute the signed root from events alone. A longer one is given
// in short: without the states, and with as many of the changes in the detail as there is room for.
// See [Omitted].
func EventBody(e Recorded, place Place, limit int) ([]byte, error) {
	var members map[string]json.RawMessage // each is canonical, as the record is
	if err := json.Unmarshal(e.Record, &members); err != nil {
		return nil, fmt.Errorf("make audit event: %w", err)
	}
	members[trailMember] = canonicalOf(place)
	body := jsontext.Encode(members)
	if len(body) > limit {
		body = shortened(e, members, limit)
	}
	return body, nil
}

// The members of a record that a short event may lack.
const beforeMember, afterMember, detailMember = "before", "after", "detail"

func shortened(e Recorded, members map[string]json.RawMessage, limit int) []byte {
	o := Omitted{
		RecordBytes: len(e.Record), RecordSHA256: jsontext.Hash(e.Record),
		BeforeSHA256: hashOfMember(members[beforeMember]), AfterSHA256: hashOfMember(members[afterMember]),
	}
	delete(members, beforeMember)
	delete(members, afterMember)
	encode := func() []byte {
		members[omittedMember] = canonicalOf(o)
		return jsontext.Encode(members)
	}
	body := encode()
	if len(body) <= limit {
		return body
	}
	whole := members[detailMember]
	o.DetailSHA256 = hashOfMember(whole)
	members[detailMember], o.Changes = fewerChanges(whole, limit-(len(body)-len(whole)))
	if body = encode(); len(body) <= limit {
		return body
	}
	delete(members, detailMember)
	o.Changes = 0
	return encode()
}

// hashOfMember is the hash of a canonical member, empty where there is none.
func hashOfMember(canonical json.RawMessage) string {
	if len(canonical) == 0 {
		return ""
	}
	return jsontext.Hash(canonical)
}

// fewerChanges cuts the list "changes" of a detail to about limit bytes, and counts the
// rest. A detail without such a list stays as it is.
func fewerChanges(detail json.RawMessage, limit int) (json.RawMessage, int) {
	const list, room = "changes", 256 // for the commas, the counts and the hashes
	var members map[string]json.RawMessage
	var changes []json.RawMessage
	if json.Unmarshal(detail, &members) != nil || json.Unmarshal(members[list], &changes) != nil {
		return detail, 0
	}
	size, kept := len(detail)-len(members[list])+room, 0
	for ; kept < len(changes) && size+len(changes[kept])+1 <= limit; kept++ {
		size += len(changes[kept]) + 1
	}
	members[list] = jsontext.Encode(changes[:kept])
	return canonicalOf(members), len(changes) - kept
}

// canonicalOf encodes a value whose JSON has a canonical form for certain.
func canonicalOf(v any) json.RawMessage {
	raw := jsontext.Encode(v)
	canonical, err := jsontext.Canonical(raw)
	if err != nil { // never
		return raw
	}
	return canonical
}
