package main

import (
	"cmp"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/auditrelay/auditrelay/internal/testbed/reference"
)

// entryTypes are the types of the trail's entries: what each says, and the struct that its detail
// is made from, below internal.
var entryTypes = []struct{ name, says, detail string }{
	{"settings.baseline", "The state of a setting when the relay first saw it.", "workspace.detail"},
	{"settings.changed", "A setting changed within `window`; `before` and `after` have it whole.", "workspace.detail"},
	{"settings.restated", "The state of a setting again, after damage to the trail left it uncertain.", "workspace.detail"},
	{"settings.gone", "A setting is no longer shown.", "workspace.detail"},
	{"settings.checked", "Attests the looks since the last such entry, which found no change other than those entered.", "workspace.Check"},
	{"settings.failed", "Some settings cannot be read, so that changes are not seen.", "workspace.failuresDetail"},
	{"settings.recovered", "All settings can be read again.", "workspace.failuresDetail"},
	{"streaming.baseline", "The streaming config when the relay first saw it.", "workspace/streaming.detail"},
	{"streaming.changed", "The streaming config changed, by the relay or by somebody else.", "workspace/streaming.detail"},
	{"streaming.status_changed", "Only the declared status of the stream changed.", "workspace/streaming.detail"},
	{"streaming.restated", "The streaming config again, after damage to the trail left it uncertain.", "workspace/streaming.detail"},
	{"streaming.checked", "Attests the looks at the streaming config since the last such entry.", "workspace.Check"},
	{"streaming.failed", "The streaming config cannot be read.", "workspace.failuresDetail"},
	{"streaming.recovered", "The streaming config can be read again.", "workspace.failuresDetail"},
	{"streaming.put_intended", "The relay is about to set the streaming config.", "workspace/streaming.attempt"},
	{"streaming.put_ended", "It was set, or the outcome is unknown.", "workspace/streaming.attempt"},
	{"streaming.put_failed", "It could not be set.", "workspace/streaming.attempt"},
	{"streaming.fight", "Somebody sets the streaming config back, again and again.", "workspace/streaming.fightDetail"},
	{"streaming.fight_ended", "Nobody sets it back any more.", "workspace/streaming.fightDetail"},
	{"health.changed", "An environment changed its [state](../../README.md#the-states-of-an-environment).", "health.change"},
	{"health.gap", "A gap in the event log has ended, with an estimate of what was lost.", "health.gapDetail"},
	{"silence.added", "A person silenced the alarms of environments.", "health.silenceDetail"},
	{"silence.ended", "A silence ended, or was ended.", "health.silenceDetail"},
	{"environment.gone", "An environment that was there is not there any more.", "workspace.goneDetail"},
	{"environment.back", "It is there again.", "workspace.goneDetail"},
	{"workspace.unreachable", "The management API cannot be used.", "workspace.reachDetail"},
	{"workspace.reachable", "It can be used again.", "workspace.reachDetail"},
	{"action.intended", "A person is about to change the workspace through the relay.", "workspace.action"},
	{"action.ended", "The outcome of that.", "workspace.action"},
	{"policy.violated", "A setting violates a rule that it kept before.", "workspace.policyDetail"},
	{"policy.ended", "A violation ended, or was excepted.", "workspace.policyDetail"},
	{"migration.started", "A run of `auditrelay migrate` began.", "migration.Note"},
	{"migration.ended", "It ended.", "migration.Note"},
	{"relay.started", "The relay started, with the outline of its configuration and how the run before ended.", "app.run"},
	{"relay.reloaded", "An edited configuration was applied.", "app.run"},
	{"relay.stopped", "The relay stopped.", "app.run"},
	{"journal.quarantined", "Records of a log are lost or damaged; they are named.", "journal.Loss"},
	{"journal.damage_accepted", "A person let sinks pass over much damage.", "journal.Damage"},
	{"journal.let_go", "A person gave up what a former journal held.", "app.LetGo"},
	{"journal.moved", "The journal moved between a disk and a cluster.", "app.Moved"},
	{"events.span", "A digest of a run of the event stream, with which each event of it can be proven.", "trail/eventproof.Span"},
	{"trail.generation", "A new generation of the trail begins; names the one before.", "trail/audit.Opening"},
	{"trail.damaged", "Names damage to the trail.", "trail/audit.naming"},
	{"trail.restored", "Entries damaged in the log were read from the published files, as the signed root proves.", "trail/audit.naming"},
	{"trail.key_rotated", "The signing key was replaced; the old one signed this.", "trail/audit.Rotation"},
	{"trail.annotated", "A person marked an entry as reviewed.", "trail/timeline.Annotation"},
	{"trail.archived", "Files with old entries were moved out of the data directory.", "trail/proof.Archived"},
	{"trail.witness_refused", "A witness knows another history of the trail.", "trail/audit.WitnessRefusal"},
	{"trail.witness_agreed", "That witness signs again.", "trail/audit.WitnessRefusal"},
	{"trail.checkpoint", "Of no entry: an event with a signed checkpoint, so that sinks hold the trail to its word.", ""},
	{"credential.revoked", "A person revoked a push credential.", "control/console.revocation"},
	{"console.session_revoked", "A person logged people out of the console in the browser.", "control/console.loggedOut"},
	{"console.work_stopped", "A person stopped a replay or a removal of dead letters, which was begun in the console in the browser.", "control/console.StoppedWork"},
	{"credentials.damaged", "A push credential's record was damaged; `lost` says whether it is gone.", ""},
	{"deadletters.discarded", "A person removed dead letters for good.", ""},
	{"deadletters.replayed", "A person has dead letters handed to a sink again.", "control/console.replayed"},
	{"journal.replayed", "A person has the events of a time handed to a sink again.", "control/console.ReplaySpan"},
	{"sink.retired", "A person gave up what was kept for a sink that is no longer configured.", "control/console.Sink"},
}

// TestEntriesReferenceIs compares the reference of the trail's entries with the code.
func TestEntriesReferenceIs(t *testing.T) {
	t.Parallel()
	known := map[string]bool{}
	for _, e := range entryTypes {
		known[e.name] = true
	}
	for _, name := range typesInTheCode(t) {
		assert.True(t, known[name], "add %s to entryTypes", name)
	}
	s := structs{root: reference.Root(t), parsed: map[string][]*ast.File{}}
	text := "# Entries of the audit trail\n\nMade from the code by `make reference`; a test fails while it is stale. An entry is also an event: its `type` is the CloudEvents `type`, and its JSON the body.\n\n## Members of an entry\n" +
		reference.Head("member", "meaning")
	for _, m := range s.members(t, "internal/trail/audit.Entry") {
		text += reference.Row("`"+m.name+"`", m.comment)
	}
	text += "\n## Types\n" + reference.Head("type", "what it says", "members of `detail`")
	meanings := map[string]string{}
	for _, e := range entryTypes {
		var names []string
		detail := e.detail
		if detail != "" {
			detail = "internal/" + detail
		}
		for _, m := range s.members(t, detail) {
			names = append(names, "`"+m.name+"`")
			meanings[m.name] = cmp.Or(meanings[m.name], m.comment)
		}
		text += reference.Row("`"+e.name+"`", e.says, strings.Join(names, ", "))
	}
	text += "\n## Members of detail\n\nThose that their names do not explain.\n" + reference.Head("member", "meaning")
	for _, name := range slices.Sorted(maps.Keys(meanings)) {
		if meanings[name] != "" {
			text += reference.Row("`"+name+"`", meanings[name])
		}
	}
	reference.Page(t, "entries.md", text)
}

// typesInTheCode are the types that a sink's match can name, and those stated as such in the code.
func typesInTheCode(t *testing.T) (all []string) {
	t.Helper()
	_, list, _ := strings.Cut(readFile(t, "config/sink_routing.go"), "func relayTypes() []string {")
	list, _, _ = strings.Cut(list, "\n}\n")
	for _, m := range regexp.MustCompile(`"([a-z_]+\.[a-z_]+)"`).FindAllStringSubmatch(list, -1) {
		all = append(all, m[1])
	}
	require.Greater(t, len(all), 30)
	stated := regexp.MustCompile(`\b[tT]ype\w*(?::| +=) +"([a-z_]+\.[a-z_]+)"`)
	for _, line := range goList(t, "-f", `{{.Dir}} {{join .GoFiles " "}}`, "./internal/...") {
		fields := strings.Fields(line)
		for _, file := range fields[1:] {
			if strings.Contains(fields[0], "testbed") {
				continue
			}
			data, err := os.ReadFile(filepath.Join(fields[0], file))
			require.NoError(t, err)
			for _, m := range stated.FindAllStringSubmatch(string(data), -1) {
				all = append(all, m[1])
			}
		}
	}
	return all
}

// structs reads the members of structs from the source.
type structs struct {
	root   string
	parsed map[string][]*ast.File
}

type member struct{ name, comment string }

// docLink is a link of a Go comment.
var docLink = regexp.MustCompile(`\[([A-Za-z.]+)\]`)

// members are those of a struct's JSON, embedded ones among them. of is a folder
// and a name.
func (s structs) members(t *testing.T, of string) (all []member) {
	t.Helper()
	if of == "" {
		return nil
	}
	dot := strings.LastIndex(of, ".")
	folder, name := of[:dot], of[dot+1:]
	for _, file := range s.files(t, folder) {
		object := file.Scope.Lookup(name)
		if object == nil {
			continue
		}
		spec, _ := object.Decl.(*ast.TypeSpec)
		fields, ok := spec.Type.(*ast.StructType)
		require.True(t, ok, of)
		for _, field := range fields.Fields.List {
			all = append(all, s.member(t, file, folder, field)...)
		}
		return all
	}
	require.Fail(t, "there is no struct "+of)
	return nil
}

func (s structs) member(t *testing.T, file *ast.File, folder string, field *ast.Field) []member {
	t.Helper()
	name := ""
	if field.Tag != nil {
		tag, err := strconv.Unquote(field.Tag.Value)
		require.NoError(t, err)
		name, _, _ = strings.Cut(reflect.StructTag(tag).Get("json"), ",")
	}
	switch {
	case name == "-" || name == "" && len(field.Names) > 0:
		return nil
	case name != "":
		comment := strings.Join(strings.Fields(cmp.Or(field.Doc.Text(), field.Comment.Text())), " ")
		return []member{{name, docLink.ReplaceAllString(comment, "$1")}}
	}
	embedded := field.Type
	if star, ok := embedded.(*ast.StarExpr); ok {
		embedded = star.X
	}
	if other, ok := embedded.(*ast.SelectorExpr); ok {
		return s.members(t, importOf(file, other.X.(*ast.Ident).Name)+"."+other.Sel.Name)
	}
	return s.members(t, folder+"."+embedded.(*ast.Ident).Name)
}

// importOf is the folder of a package that a file knows by a name.
func importOf(file *ast.File, name string) string {
	for _, spec := range file.Imports {
		if path, _ := strconv.Unquote(spec.Path.Value); filepath.Base(path) == name {
			return strings.TrimPrefix(path, "github.com/auditrelay/auditrelay/")
		}
	}
	return ""
}

func (s structs) files(t *testing.T, folder string) []*ast.File {
	t.Helper()
	if s.parsed[folder] == nil {
		paths, err := filepath.Glob(filepath.Join(s.root, folder, "*.go"))
		require.NoError(t, err)
		for _, path := range paths {
			if !strings.HasSuffix(path, "_test.go") {
				file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
				require.NoError(t, err)
				s.parsed[folder] = append(s.parsed[folder], file)
			}
		}
	}
	return s.parsed[folder]
}
