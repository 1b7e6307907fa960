package meaning

import (
	"fmt"
	"reflect"
	"strings"
)

// The direction of a stream: an event log is to reach its watchers, and nobody else. A
// moved stream is weaker on both counts. A started one is mixed.

// Only these statuses are taken for what they say: after pending, the provider begins to send
// by itself. Of others, nobody knows whether events flow.
const (
	active   = "ACTIVE"
	disabled = "DISABLED"
	pending  = "PENDING"
)

// destination is where the event log goes.
type destination struct {
	member     string // of destination_config
	place      string // a host, or Datadog's site; "" for nowhere
	account    string
	credential any // its last four characters
	idle       bool
}

// destinations are the known types, with their members for place, account and credential.
var destinations = map[string]struct{ member, place, account, credential string }{
	"GRAFANA_LOKI": {"grafana_loki", "hostname", "username", "password_last_four"},
	"DATADOG":      {"datadog", "site", "", "api_key_last_four"},
}

func destinationOf(v any) destination {
	kind := textOf(v, "destination_type")
	known, ok := destinations[kind]
	if !ok {
		return destination{place: kind, idle: kind != "" && textOf(v, "streaming_status") == disabled}
	}
	config := memberOf(v, "destination_config", known.member)
	d := destination{
		member: known.member, place: strings.ToLower(textOf(config, known.place)),
		account: textOf(config, known.account), credential: memberOf(config, known.credential),
	}
	d.idle = textOf(v, "streaming_status") == disabled
	if kind == "DATADOG" {
		d.place = "Datadog " + strings.ToUpper(d.place)
	}
	return d
}

// streamingShape has the members in force: those of the other type are not understood.
func streamingShape(v any) *shape {
	s := object(map[string]*shape{"destination_type": text, "streaming_status": text})
	known, ok := destinations[textOf(v, "destination_type")]
	if !ok {
		return s
	}
	config := object(map[string]*shape{known.place: text, known.credential: anything})
	if known.account != "" {
		config.Members[known.account] = text
	}
	s.Members["destination_config"] = object(map[string]*shape{known.member: config})
	return s
}

// explainStreaming compares where the event log goes. To the destination of a disabled
// config it does not go: it is only set to.
func explainStreaming(c *collector, before, after any) {
	a, b := destinationOf(before), destinationOf(after)
	path := "/destination_config/" + b.member
	if b.member == "" {
		path = "/destination_config"
	}
	say := func(rule, sentence, witness string) {
		if b.idle && c.rules[rule].Direction != Neutral && rule != "streaming.credential_changed" && rule != "streaming.key_changed" {
			rule, sentence, witness = "streaming.redirected", sentence+"; streaming is `DISABLED`", ""
			if a.place == "" {
				rule = "streaming.prepared"
			}
		}
		c.add(rule, Statement{Sentence: sentence, Path: path, Witness: witness})
	}
	restored := c.restored && (a.place != b.place || a.account != b.account) && !b.idle
	switch {
	case restored:
		sentence, witness := restoration(a, b, textOf(after, "streaming_status"))
		say("streaming.restored", sentence, witness)
	case a.place == b.place && a.account != b.account:
		say("streaming.account_changed", fmt.Sprintf("the event log %s account %s at %s, it was %s", b.goes(), quote(b.account), quote(b.place), quote(a.account)),
			"account "+quote(b.account)+" receives the event log now")
	case a.place == b.place && b.member == "datadog" && !reflect.DeepEqual(a.credential, b.credential):
		say("streaming.key_changed", "the event log "+b.goes()+" "+quote(b.place)+" with another API key, of the same organization or another", "")
	case a.place == b.place && !reflect.DeepEqual(a.credential, b.credential):
		say("streaming.credential_changed", "the event log "+b.goes()+" "+quote(b.place)+" with another credential", "")
	case a.place == b.place:
	case b.place == "" && a.idle:
		say("streaming.idle_removed", "the event log, which went nowhere, is no longer set to go to "+quote(a.place), "")
	case b.place == "":
		say("streaming.stopped", "the event log goes nowhere now, it went to "+quote(a.place), quote(a.place)+" receives no events now")
	case a.place == "":
		say("streaming.started", "the event log now "+b.goes()+" "+quote(b.place), quote(b.place)+" receives the event log now")
	case a.idle:
		say("streaming.moved", "the event log now "+b.goes()+" "+quote(b.place)+", it was set to go to "+quote(a.place), quote(b.place)+" receives the event log now")
	default:
		say("streaming.moved", "the event log now "+b.goes()+" "+quote(b.place)+", it went to "+quote(a.place),
			quote(b.place)+" receives the event log now; "+quote(a.place)+" receives no events now")
	}
	waits := restored && textOf(after, "streaming_status") == pending // and says so
	if (a.place == "") == (b.place == "") && !waits {                 // its start or stop is told already
		c.status(before, after)
	}
}

// restoration tells that the event log is set to go to b again, after it went to a. Where
// the provider has not begun to send again, as with PENDING, that is not yet so.
func restoration(a, b destination, status string) (sentence, witness string) {
	goes, from, but := "goes to ", "nowhere", ""
	if a.place != "" {
		from = "to " + strings.TrimSpace(quote(a.place)+" "+accountOf(a, b))
	}
	if witness = quote(b.place) + " receives the event log again"; status != active {
		goes, but, witness = "is set to go to ", "; streaming is "+quote(status), ""
	}
	return "the event log " + goes + quote(b.place) + " again, as before; in between it went " + from + but, witness
}

// accountOf tells the account of a, where it is what differs from b.
func accountOf(a, b destination) string {
	if a.place != b.place {
		return ""
	}
	return "as " + quote(a.account)
}

func (d destination) goes() string {
	if d.idle {
		return "is set to go to"
	}
	return "goes to"
}

func (c *collector) status(before, after any) {
	const name = "streaming_status"
	old, now := textOf(before, name), textOf(after, name)
	rule, witness := "streaming.status_changed", ""
	switch {
	case old == now:
		return
	case old == active:
		rule, witness = "streaming.inactive", "events from now on are not delivered"
	case now == active:
		rule, witness = "streaming.active", "events from now on are delivered"
	}
	c.add(rule, Statement{
		Sentence: "streaming status: " + quote(old) + " → " + quote(now), Path: "/" + name, Witness: witness,
		Old: raw(memberOf(before, name)), New: raw(memberOf(after, name)),
	})
}

var streamingRules = []Rule{
	{"streaming.moved", Weaker, Critical, "The event log goes elsewhere.", "The new place sees every event, and the old one none."},
	{"streaming.stopped", Weaker, Critical, "The event log goes nowhere.", "Nobody sees what happens."},
	{"streaming.started", Mixed, High, "The event log goes to a place where there was none.", "Events are watched, and the place sees every one."},
	{"streaming.restored", Stronger, Low, "The relay put back the destination that had stood before.", "The change that it mends has an entry of its own, with its own severity."},
	{"streaming.redirected", Unknown, High, "The event log is set to go elsewhere, and streaming is disabled.", "Nothing goes there yet; once streaming is enabled, the new place sees every event."},
	{"streaming.prepared", Unknown, Medium, "The event log is set to go to a place where there was none, and streaming is disabled.", "Nothing goes there yet; once streaming is enabled, the place sees every event."},
	{"streaming.idle_removed", Neutral, Low, "A destination was removed while streaming was disabled.", "No event went there."},
	{"streaming.account_changed", Weaker, High, "The event log goes to another account at the same place.", "Another tenant may see every event, and the old one none."},
	{"streaming.credential_changed", Unknown, Low, "The event log is delivered with another password.", "Rotations look like this."},
	{"streaming.key_changed", Unknown, Medium, "The event log is delivered with another Datadog API key.", "Rotations look like this; so does another organization's key, which would see every event."},
	{"streaming.inactive", Weaker, High, "Streaming is not active any more.", "Events of the time without streaming are never delivered."},
	{"streaming.active", Stronger, Low, "Streaming is active again.", "Events are seen again."},
	{"streaming.status_changed", Unknown, Medium, "The status changed between two that are not active.", "What they mean is not documented."},
}
