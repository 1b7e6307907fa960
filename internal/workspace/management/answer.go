package management

import (
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"strconv"

	"github.com/auditrelay/auditrelay/internal/plaintext"
)

// Receipt comes with every success answer.
type Receipt struct {
	RequestID  string
	StatusCode int // the HTTP status
}

// Answer is a success answer with a resource.
type Answer struct {
	Receipt
	// Raw is the resource's JSON as received, except for secrets.
	Raw json.RawMessage
	// Note says what the client assumed where the answer had null for a list, or none: that
	// the list is empty, as servers write it in either way. Raw is `[]` then.
	Note string
}

// fetch makes the call and finds the resource under field in the answer; isList: it is a list. With
// an empty field, the receipt is the whole answer. An error after a 2xx comes with the receipt: a
// write has had its effect then.
func (c *Client) fetch(ctx context.Context, k call, field string, isList bool) (Answer, error) {
	k.scrub = cmp.Or(k.scrub, c.scrub)
	r, err := c.send(ctx, k)
	if err != nil {
		return Answer{}, err
	}
	members, receipt, err := r.members(k.scrub)
	if err != nil {
		return Answer{Receipt: receipt}, fmt.Errorf("%s: %w", k.operation, err)
	}
	if field == "" {
		return Answer{Receipt: receipt}, nil
	}
	raw, ok := members[field]
	note := ""
	if isList {
		if note = emptyList(members, receipt, field); note != "" {
			raw, ok = json.RawMessage("[]"), true
		}
	}
	if !ok {
		return Answer{Receipt: receipt}, fmt.Errorf("%s: %w", k.operation, &noResource{receipt, field})
	}
	return Answer{Receipt: receipt, Raw: k.scrub.cleanRaw(raw), Note: note}, nil
}

// emptyList says why an answer's list counts as empty; "" where it does not. A list may be
// left out only of an answer with a request_id, as each of the API's answers has one: an
// empty object, of a proxy or a broken server, says nothing.
func emptyList(members map[string]json.RawMessage, receipt Receipt, field string) string {
	status, given := members["status_code"]
	had := ""
	switch raw, ok := members[field]; {
	case ok && string(raw) == "null":
		had = "null for"
	case !ok && receipt.RequestID != "" && (!given || string(status) == strconv.Itoa(receipt.StatusCode)):
		had = "no"
	default:
		return ""
	}
	return fmt.Sprintf("the API's answer had %s %s: it is taken for an empty list", had, field)
}

// members splits the answer's object. An empty body is an empty object: any 2xx is a
// success, also 204.
func (r reply) members(scrub *scrubber) (map[string]json.RawMessage, Receipt, error) {
	receipt := Receipt{StatusCode: r.status}
	if len(r.body) == 0 {
		return nil, receipt, nil
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(r.body, &members); err != nil {
		return nil, receipt, fmt.Errorf("decode the answer: %w", err)
	}
	receipt.RequestID = plaintext.Line(scrub.clean(errorBody(members).text("request_id")), maxErrorText)
	return members, receipt, nil
}
