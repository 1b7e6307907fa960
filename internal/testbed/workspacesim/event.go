package workspacesim

import (
	"fmt"
	"strconv"
	"strings"
	"time"
)

// maxEventBytes bounds [Options.EventBytes].
const maxEventBytes = 1 << 20

// generator writes the events of one environment. Except for its time, an event follows
// from the seed and its sequence number, so a queue holds numbers and no events.
//
// It writes an event as the inside of a JSON string, as both destinations need it: all
// pieces are escaped once, beforehand.
type generator struct {
	seed    uint64
	size    int // least size of an event, unescaped
	head    string
	project string                // from after the sequence number to the action
	status  [eventStatuses]string // from after the action to the request id
	quotes  [eventStatuses]int    // bytes added by escaping an event
	agents  []escaped
}

// escaped is a text, escaped twice: for a JSON string within a JSON string. surplus is
// its additional length over a single escaping.
type escaped struct {
	text    string
	surplus int
}

// The variable parts of events.
var (
	eventActions = []string{
		"members.authenticate", "members.create", "members.update", "sessions.authenticate", "sessions.exchange",
		"sessions.revoke", "magic_links.email.login_or_signup", "passwords.authenticate", "passwords.reset",
		"otps.sms.send", "otps.sms.authenticate", "sso.authenticate", "totps.authenticate", "organizations.update",
	}
	eventErrors = []string{
		"unauthorized_credentials", "member_not_found", "session_expired", "otp_code_not_found", "too_many_requests",
	}
	eventMethods = []string{"password", "password+totp", "webauthn", "saml", "oidc", "magic_link", "sms_otp"}
	userAgents   = []string{
		"Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36 (KHTML, like Gecko) Chrome/142.0.0.0 Safari/537.36",
		"Mozilla/5.0 (Macintosh; Intel Mac OS X 14_5) AppleWebKit/605.1.15 Version/18.1 Safari/605.1.15",
		"Mozilla/5.0 (Windows NT 10.0; Win64; x64; rv:145.0) Gecko/20100101 Firefox/145.0",
		"okhttp/4.12.0",
		"Zoë's \"beta\" client\\2.1 (naïve; 日本語)",
	}
	filler = strings.Repeat("session verified by the device trust policy of the organization, risk score within limits, "+
		"factor enrolled before and still valid, request passed the bot check and the rate limit of its network, ", 4)
)

const eventStatuses = 3

// newGenerator makes the generator of an environment. JSON must not need to escape run
// and slugs.
func newGenerator(o *Options, e *environment) *generator {
	g := &generator{seed: mix(o.Seed ^ hashOf(e.project+"/"+e.slug)), size: o.EventBytes}
	projectID := "project-live-" + uuid(mix(hashOf(e.project)), mix(hashOf(e.slug)))
	g.head = quoted("{'event_id':'" + idPrefix(o, e))
	g.project = quoted("','project_id':'" + projectID +
		"','environment':'" + e.slug + "','action':'")
	for i, status := range []string{"start", "success", "error"} {
		g.status[i] = quoted("','status':'" + status + "','request_id':'request-id-")
		g.quotes[i] = strings.Count(g.head+g.project+g.status[i]+pieceTime+pieceMillis+pieceActor+
			pieceEmail+pieceIP+pieceAgent+pieceMethod+pieceTook+pieceNote+pieceEnd, `\`)
	}
	g.quotes[2] += strings.Count(pieceError, `\`)
	for _, a := range userAgents {
		inner := jsonInside(a)
		outer := jsonInside(inner)
		g.agents = append(g.agents, escaped{outer, len(outer) - len(inner)})
	}
	return g
}

// quoted replaces each ' with an escaped quotation mark.
func quoted(s string) string { return strings.ReplaceAll(s, "'", `\"`) }

// jsonInside is s as the inside of a JSON string.
func jsonInside(s string) string {
	return strings.NewReplacer(`\`, `\\`, `"`, `\"`).Replace(s)
}

func hashOf(s string) uint64 {
	h := uint64(len(s))
	for i := range len(s) {
		h = mix(h ^ uint64(s[i]))
	}
	return h
}

// idPrefix begins all event ids of an environment in one run.
func idPrefix(o *Options, e *environment) string {
	return "event-log-" + e.project + "." + e.slug + "-" + o.Run + "-"
}

// idDigits is the width of the sequence number in an event id.
const idDigits = 12

// EventID returns the id of an event by its environment's [Ledger] prefix.
func EventID(prefix string, seq uint64) string {
	return fmt.Sprintf("%s%0*d", prefix, idDigits, seq)
}

// ParseEventID splits an event id into its environment's prefix and sequence number.
func ParseEventID(id string) (prefix string, seq uint64, ok bool) {
	n := len(id) - idDigits
	if n <= 0 || id[n-1] != '-' || !strings.HasPrefix(id, "event-log-") {
		return "", 0, false
	}
	seq, err := strconv.ParseUint(id[n:], 10, 64)
	return id[:n], seq, err == nil
}

// The pieces of an event after its request id, between which the variables come.
var (
	pieceTime   = quoted("','created_at':'")
	pieceMillis = quoted("','timestamp':")
	pieceActor  = quoted(",'actor':{'type':'member','id':'member-live-")
	pieceEmail  = quoted("','email':'user")
	pieceIP     = quoted("@example.test'},'ip':'10.")
	pieceAgent  = quoted("','user_agent':'")
	pieceMethod = quoted("','details':{'method':'")
	pieceError  = quoted("','error_type':'")
	pieceTook   = quoted("','duration_ms':")
	pieceNote   = quoted(",'note':'")
	pieceEnd    = quoted("'}}")
)

// appendEvent writes event seq, inside of a JSON string. Two events in a row
// share a request: its start, and its end.
func (g *generator) appendEvent(dst []byte, seq uint64, c *clock) []byte {
	start := len(dst)
	h, own := mix(g.seed^(seq>>1)), mix(g.seed+seq)
	status := eventStatus(seq, h)
	agent := &g.agents[(h>>16)%uint64(len(g.agents))]
	dst = append(dst, g.head...)
	dst = appendDigits(dst, seq, idDigits)
	dst = append(dst, g.project...)
	dst = append(dst, eventActions[h%uint64(len(eventActions))]...)
	dst = append(dst, g.status[status]...)
	dst = appendHex(dst, mix(h))
	dst = append(dst, pieceTime...)
	dst = c.appendRFC3339(dst)
	dst = append(dst, pieceMillis...)
	dst = appendDigits(dst, uint64(c.at/int64(time.Millisecond)), 13)
	dst = g.appendActor(dst, h)
	dst = append(dst, pieceAgent...)
	dst = append(dst, agent.text...)
	dst = append(dst, pieceMethod...)
	dst = append(dst, eventMethods[(h>>24)%uint64(len(eventMethods))]...)
	if status == 2 {
		dst = append(dst, pieceError...)
		dst = append(dst, eventErrors[(h>>32)%uint64(len(eventErrors))]...)
	}
	dst = append(dst, pieceTook...)
	dst = strconv.AppendUint(dst, own%900, 10)
	return g.appendNote(dst, start, g.quotes[status]+agent.surplus, own)
}

// eventStatus is 0 for a start, 1 for a success, 2 for an error.
func eventStatus(seq, h uint64) int {
	switch {
	case seq%2 == 0:
		return 0
	case (h>>40)%10 == 0:
		return 2
	}
	return 1
}

func (g *generator) appendActor(dst []byte, h uint64) []byte {
	user := (h >> 44) % 200_000
	dst = append(dst, pieceActor...)
	dst = appendHex(dst, mix(user))
	dst = append(dst, pieceEmail...)
	dst = appendDigits(dst, user, 6)
	dst = append(dst, pieceIP...)
	dst = strconv.AppendUint(dst, h>>8&255, 10)
	dst = append(dst, '.')
	dst = strconv.AppendUint(dst, h>>16&255, 10)
	dst = append(dst, '.')
	return strconv.AppendUint(dst, h>>24&255, 10)
}

// appendNote ends the event begun at start, with a note to fill it to its least size.
func (g *generator) appendNote(dst []byte, start, escapes int, own uint64) []byte {
	dst = append(dst, pieceNote...)
	missing := g.size - (len(dst) + len(pieceEnd) - start - escapes)
	for at := int(own % uint64(len(filler))); missing > 0; at = 0 {
		n := min(missing, len(filler)-at)
		dst = append(dst, filler[at:at+n]...)
		missing -= n
	}
	return append(dst, pieceEnd...)
}
