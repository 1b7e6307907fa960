package web

import (
	"net/url"

	"github.com/auditrelay/auditrelay/internal/control/access"
	"github.com/auditrelay/auditrelay/internal/trail/tiles"
)

// page is a row of the table of pages.
type page struct {
	path, title, file string
	least             access.Role
	// data is what the template shows.
	data func(*asked) (any, error)
	// under is the path of the page that this one belongs to; empty for those in the navigation.
	under string
}

// action changes something, by POST. It is first asked for its plan, which a person confirms.
type action struct {
	path, title string
	least       access.Role
	// prepare reads what is asked for, and changes nothing.
	prepare func(*asked) (prepared, error)
}

// prepared is an action as it was asked for.
type prepared struct {
	// plan changes nothing. It tells what do would do.
	plan func() (plan, error)
	do   func() (done, error)
}

// plan is a dry run.
type plan struct {
	// Says are sentences on what would happen.
	Says []string
	// Head and Rows are a table of it; Rows may be empty.
	Head []string
	Rows [][]string
	// Button is the text of what confirms, such as "Discard 3 dead letters". It is empty where there
	// is nothing to do.
	Button string
	// With are further fields that do will be asked with, apart from those of this request.
	With url.Values
}

// done is the end of an action: a message to the person, and the page to see it on.
type done struct{ message, path string }

// feed answers with something other than a page: a file, a picture, or a stream.
type feed struct {
	path  string
	least access.Role
	serve handler
}

// pages are all pages, in the order of the navigation.
var pages = []page{
	{path: "/", title: "Overview", file: "overview.html", least: access.Viewer, data: overviewOf},
	{path: changesPath, title: "Changes", file: "changes.html", least: access.Viewer, data: changesOf},
	{path: changesPath + "/{index}", title: "Entry", file: "entry.html", least: access.Viewer, data: entryOf, under: changesPath},
	{path: statesPath, title: "States", file: "states.html", least: access.Viewer, data: statesOf, under: changesPath},
	{path: policiesPath, title: "Policies", file: "policies.html", least: access.Viewer, data: policiesOf},
	{path: streamingPath, title: "Streaming", file: "streaming.html", least: access.Viewer, data: flowOf},
	{path: streamingPath + "/{project}/{environment}", title: "Streaming", file: "history.html", least: access.Viewer, data: historyOf, under: streamingPath},
	{path: sinksPath, title: "Sinks", file: "sinks.html", least: access.Viewer, data: sinksOf},
	{path: sinkPath + "{sink}", title: "Sink", file: "sink.html", least: access.Viewer, data: sinkOf, under: sinksPath},
	{path: lettersPath, title: "Dead letters", file: "letters.html", least: access.Viewer, data: lettersOf, under: sinksPath},
	{path: lettersPath + "/{number}", title: "Dead letter", file: "letter.html", least: access.Viewer, data: letterOf, under: sinksPath},
	{path: jobsPath + "/{id}", title: "Work under way", file: "job.html", least: access.Operator, data: jobOf, under: sinksPath},
	{path: livePath, title: "Live", file: "live.html", least: access.Viewer, data: liveOf},
	{path: "/sessions", title: "Sessions", file: "sessions.html", least: access.Operator, data: sessionsOf},
	{path: "/prove", title: "Prove", file: "prove.html", least: access.Auditor, data: proveOf},
}

var actions = []action{
	{path: changesPath + "/{index}/annotate", title: "Review an entry", least: access.Auditor, prepare: annotate},
	{path: streamingPath + "/apply", title: "Set the streaming config", least: access.Operator, prepare: applyStream},
	{path: streamingPath + "/rotate", title: "Rotate a push credential", least: access.Operator, prepare: rotateCredential},
	{path: "/silences/add", title: "Silence alarms", least: access.Operator, prepare: addSilence},
	{path: "/silences/end", title: "End a silence", least: access.Operator, prepare: endSilence},
	{path: lettersPath + "/replay", title: "Replay dead letters", least: access.Operator, prepare: replayLetters},
	{path: lettersPath + "/discard", title: "Discard dead letters", least: access.Operator, prepare: discardLetters},
	{path: sinksPath + "/replay", title: "Replay a time", least: access.Operator, prepare: replaySpan},
	{path: jobsPath + "/{id}/stop", title: "Stop work", least: access.Operator, prepare: stopWork},
	{path: "/sessions/revoke", title: "Log a person out", least: access.Operator, prepare: logOut},
}

var feeds = []feed{
	{path: exportPath, least: access.Viewer, serve: exportChanges},
	{path: changesPath + "/{index}/text", least: access.Viewer, serve: entryText},
	{path: changesPath + "/{index}/mail", least: access.Viewer, serve: entryMail},
	{path: tiles.Prefix, least: access.Auditor, serve: trailFiles},
	{path: "/prove/policy", least: access.Auditor, serve: trailPolicy},
}
