package routing

import (
	"cmp"
	"encoding/json"
	"maps"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/auditrelay/auditrelay/relay"
)

// logBody is the known part of a log event's body. A member whose type differs from that here
// counts as absent.
type logBody struct {
	Action    string `json:"action"`
	Status    string `json:"status"`
	RequestID string `json:"request_id"`
	ErrorType string `json:"error_type"`
	IP        string `json:"ip"`
	UserAgent string `json:"user_agent"`
	UserID    string `json:"user_id"`
	MemberID  string `json:"member_id"`
	Email     string `json:"email"`
	User      person `json:"user"`
	Member    person `json:"member"`
	Actor     person `json:"actor"`
	Details   struct {
		ErrorType string `json:"error_type"`
	} `json:"details"`
}

type person struct {
	ID    string `json:"id"`
	Email string `json:"email"`
}

// logEvent fills o with a pushed event.
func (o *ocsfObject) logEvent(e *relay.Event) {
	var b logBody
	_ = json.Unmarshal(e.Body, &b) // raw_data has those that cannot be read
	b.cut()
	o.Metadata.LogName, o.Metadata.Correlation = "event_log", b.RequestID
	o.Metadata.LoggedTime = e.Received.UnixMilli()
	o.Message = e.Type
	if b.Action != "" {
		o.Message = strings.Trim(b.Action+": "+b.Status, ": ")
	}
	o.StatusDetail = cmp.Or(b.ErrorType, b.Details.ErrorType)
	switch b.Status {
	case "":
	case "success":
		o.ended(statusSuccess, "")
	case "error":
		o.ended(statusFailure, "")
	default:
		o.ended(statusOther, b.Status)
	}
	o.Unmapped.Event = plainMembers(e.Body)
	o.is(baseEvent, activityOther, cmp.Or(b.Action, e.Type))
	if a, ok := session(b.Action); ok && (o.StatusID == statusSuccess || o.StatusID == statusFailure) {
		o.authentication(e, a, &b)
	}
}

// maxText bounds a text that is taken from a body, in bytes.
const maxText = 1024

// cut shortens the texts that are used at several places in the object.
func (b *logBody) cut() {
	for _, text := range []*string{&b.Action, &b.Status, &b.RequestID, &b.ErrorType, &b.Details.ErrorType, &b.UserAgent} {
		if len(*text) > maxText {
			*text = strings.ToValidUTF8((*text)[:maxText], "") + "…"
		}
	}
}

// session says whether an action begins or ends a session. Checking the token of an
// open session does neither.
func session(action string) (activity, bool) {
	of, what := "", action
	if i := strings.LastIndexByte(action, '.'); i >= 0 {
		of, what = action[:i], action[i+1:]
	}
	ofSession := of == "sessions" || of == "session"
	switch what {
	case "authenticate", "login", "logon", "log_in", "signin", "sign_in":
		return activityLogon, !ofSession
	case "logout", "logoff", "log_out", "signout", "sign_out":
		return activityLogoff, true
	case "revoke":
		return activityLogoff, ofSession
	}
	return 0, false
}

// authentication makes o an Authentication, if the body names the user, which the class
// requires.
func (o *ocsfObject) authentication(e *relay.Event, a activity, b *logBody) {
	user := named{
		UID:  cmp.Or(b.UserID, b.MemberID, b.User.ID, b.Member.ID, b.Actor.ID),
		Name: cmp.Or(b.Email, b.User.Email, b.Member.Email, b.Actor.Email),
	}
	if user == (named{}) {
		return
	}
	o.is(authentication, a, "")
	o.User = &user
	o.Service = &named{Name: strings.Trim(e.Project+"/"+e.Environment, "/"), UID: cmp.Or(e.Source, "unknown")}
	if ip, err := netip.ParseAddr(b.IP); err == nil {
		o.SrcEndpoint = &endpoint{IP: ip.Unmap().WithZone("").String()}
	}
	if b.UserAgent != "" {
		o.HTTPRequest = &httpRequest{UserAgent: b.UserAgent}
	}
}

const (
	maxMembers    = 64
	maxMemberName = 128  // bytes
	maxMember     = 1024 // bytes as JSON
)

// plainMembers returns the first 64 short texts, numbers and truth values of a JSON object, by
// name. Texts are encoded again, and numbers outside a double's range are left out, since some
// readers refuse a whole object for a lone surrogate or 1e999. raw_data has them as they came.
func plainMembers(text []byte) map[string]json.RawMessage {
	var all map[string]json.RawMessage
	if json.Unmarshal(text, &all) != nil {
		return nil
	}
	plain := map[string]json.RawMessage{}
	for _, name := range slices.Sorted(maps.Keys(all)) {
		if len(plain) == maxMembers {
			break
		}
		if raw, ok := plainMember(all[name]); ok && len(name) <= maxMemberName {
			plain[name] = raw
		}
	}
	return plain
}

func plainMember(raw json.RawMessage) (json.RawMessage, bool) {
	if len(raw) == 0 || len(raw) > maxMember {
		return nil, false
	}
	switch c := raw[0]; {
	case c == 't' || c == 'f':
		return raw, true
	case c == '"':
		var text string
		if json.Unmarshal(raw, &text) != nil {
			return nil, false
		}
		again, err := json.Marshal(text)
		return again, err == nil
	case c == '-' || c >= '0' && c <= '9':
		_, err := strconv.ParseFloat(string(raw), 64)
		return raw, err == nil
	}
	return nil, false
}
