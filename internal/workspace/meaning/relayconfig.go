package meaning

import (
	"strings"

	"github.com/auditrelay/auditrelay/internal/jsontext"
)

// RelayConfiguration is the subject of the relay's own configuration, by its outline
// (config.Config.Outline). The direction says who sees less now: an environment, a sink or
// a witness that is taken away is weaker.
const RelayConfiguration = "relay_configuration"

// relayLists are the parts of the outline whose members have names.
var relayLists = []struct {
	path            []string
	what, rule      string
	without, within string // what becomes of a member
}{
	{[]string{"environments"}, "environment", "relay.environment", "its events are refused now", "its events are taken now"},
	{[]string{"sinks"}, "sink", "relay.sink", "it receives nothing now", "it receives events now"},
	{[]string{"audit", "witnesses"}, "witness", "relay.witness", "it cosigns nothing now", "it cosigns the trail now"},
}

// guards are the parts of the configuration that decide what is watched, delivered and
// recorded, by the beginning of their paths.
var guards = []string{"/environments/", "/sinks/", "/settings", "/streaming", "/audit", "/workspace", "/ingest/anonymous", "/data_dir"}

func explainRelay(c *collector, before, after any) {
	told := map[string]bool{}
	for _, l := range relayLists {
		at := "/" + strings.Join(l.path, "/")
		told[at] = true
		a, _ := memberOf(before, l.path...).(map[string]any)
		b, _ := memberOf(after, l.path...).(map[string]any)
		for _, name := range sortedUnion(a, b) {
			path := at + "/" + jsontext.Escape(name)
			switch _, was := a[name]; {
			case was && b[name] == nil:
				c.add(l.rule+"_removed", Statement{
					Sentence: l.what + " " + quote(name) + " was taken out of the relay's configuration", Path: path, Witness: l.without, Old: raw(a[name]),
				})
			case !was:
				c.add(l.rule+"_added", Statement{
					Sentence: l.what + " " + quote(name) + " is new in the relay's configuration", Path: path, Witness: l.within, New: raw(b[name]),
				})
			default:
				continue
			}
			told[path] = true
		}
	}
	changes := jsontext.DiffValues(nil, before, after)
	for _, change := range changes.List {
		if !told[change.Path] {
			c.plain(relayRule(change.Path), jsontext.Changes{List: []jsontext.Change{change}})
		}
	}
	c.plain("relay.guard_changed", jsontext.Changes{More: changes.More})
}

func relayRule(path string) string {
	for _, guard := range guards {
		if strings.HasPrefix(path, guard) {
			return "relay.guard_changed"
		}
	}
	return "relay.option_changed"
}

var relayRules = []Rule{
	{"relay.environment_removed", Weaker, High, "An environment was taken out of the relay's configuration.", "Its event log is refused here, and its settings are watched no more."},
	{"relay.environment_added", Stronger, Info, "An environment is new in the relay's configuration.", "More is watched."},
	{"relay.sink_removed", Weaker, High, "A sink was taken out of the relay's configuration.", "Its receiver gets neither events nor this trail any more."},
	{"relay.sink_added", Mixed, Medium, "A sink is new in the relay's configuration.", "Somebody else receives the events."},
	{"relay.witness_removed", Weaker, High, "A witness was taken out of the relay's configuration.", "A trail that is put back is found from fewer places."},
	{"relay.witness_added", Stronger, Info, "A witness is new in the relay's configuration.", "A trail that is put back is found from more places."},
	{"relay.guard_changed", Unknown, High, "The relay's configuration changed in a part that decides what is watched, delivered or recorded.", "A filter can keep events from a sink, and a switch can end the watch."},
	{"relay.option_changed", Unknown, Low, "The relay's configuration changed in another part.", "It says how the relay works, and not what it watches."},
}
