package cli

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/auditrelay/auditrelay/config"
)

// run asks everything, in the order of the file.
func (i *interview) run() error {
	i.say("An empty answer takes what is in [brackets], and - leaves something out.\nCtrl-C ends this, and nothing is written.\n")
	folder := "./relay-data"
	if os.Getuid() == 0 {
		folder = "/var/lib/auditrelay"
	}
	d := &i.draft
	return inTurn(
		func() error {
			return i.ask("data_dir", "Folder for the relay's data, on a local disk", folder, &d.DataDir)
		},
		func() error {
			return i.ask("workspace.base_url", "Address of the Workspace Management API", "", &d.BaseURL)
		},
		func() error { return i.ask("workspace.key_id", "Id of a workspace management key", "", &d.KeyID) },
		func() error {
			return i.secret("workspace.secret", "Secret of that key", "WORKSPACE_KEY_SECRET", &d.Secret)
		},
		i.environments, i.host,
		func() error {
			return i.ask("console.listen", "IP:PORT for a look in the browser, on this machine only", "127.0.0.1:9180", &d.Console)
		},
		i.sinks,
	)
}

// inTurn asks one after the other, until one fails.
func inTurn(all ...func() error) error {
	for _, ask := range all {
		if err := ask(); err != nil {
			return err
		}
	}
	return nil
}

func (i *interview) environments() error {
	project := ""
	for n := 0; ; n++ {
		i.draft.Environments = append(i.draft.Environments, draftEnvironment{})
		e, at := &i.draft.Environments[n], fmt.Sprintf("environments[%d]", n)
		if err := inTurn(
			func() error { return i.ask(at+".project", "Slug of a project", project, &e.Project) },
			func() error { return i.ask(at, "Slug of one of its environments", "", &e.Environment) },
		); err != nil {
			return err
		}
		project = e.Project
		if more, err := i.answer("Another environment, y or n", "n"); err != nil || !strings.HasPrefix(more, "y") {
			return err
		}
	}
}

// host asks where the provider's pushes come in, if the relay is to get them.
func (i *interview) host() error {
	d := &i.draft
	err := i.ask("environments[0].stream", "Host name at which the provider reaches this relay (empty: only watch, and receive nothing)", "", &d.Host)
	switch {
	case err != nil || d.Host == "":
		return err
	case strings.Contains(d.Host, ":"): // on loopback, or else it would not have passed
		d.Listen = d.Host
		return nil
	}
	d.Listen = ":443"
	if err := i.ask("ingest.tls.cert_file", "File with the certificate of "+d.Host+" and its chain (empty: a proxy in front of the relay ends TLS)", "", &d.CertFile); err != nil {
		return err
	}
	if d.CertFile == "" {
		d.Proxy = true
		return i.ask("ingest.listen", "IP:PORT to which the proxy hands pushes on", "127.0.0.1:3100", &d.Listen)
	}
	return inTurn(
		func() error { return i.ask("ingest.tls", "File with its key", "", &d.KeyFile) },
		func() error { return i.ask("ingest.listen", "IP:PORT to listen on", ":443", &d.Listen) },
	)
}

// A sinkQuestion asks for a field of a sink's section.
type sinkQuestion struct {
	field, text, usual string
	secret, list       bool // usual is then a variable's name; commas separate several values
}

// sinkKinds are those that can be answered, with their questions.
var sinkKinds = []string{"file", "kafka", "nats", "loki", "datadog", "webhook"}

var sinkQuestions = map[string][]sinkQuestion{
	"file": {{field: "path", text: "File for the events", usual: "archive/events.jsonl"}},
	"kafka": {
		{field: "brokers", text: "Brokers, HOST:PORT[,HOST:PORT…]", list: true},
		{field: "topic", text: "Topic, which may hold {type}, {project} and {environment}", usual: "auditrelay.events"},
	},
	"nats": {
		{field: "url", text: "Servers, such as tls://nats.example.com:4222"},
		{field: "subject", text: "Subject, which a JetStream stream takes", usual: "auditrelay.{project}.{environment}.{type}"},
	},
	"loki": {{field: "url", text: "Address of its push API, such as https://loki.example.com/loki/api/v1/push"}},
	"datadog": {
		{field: "site", text: "Site of your organisation", usual: "datadoghq.com"},
		{field: "api_key", text: "API key", usual: "DD_API_KEY", secret: true},
	},
	"webhook": {
		{field: "url", text: "Address to post to"},
		{field: "secret", text: "Secret that signs each request", usual: "WEBHOOK_SECRET", secret: true},
	},
}

func (i *interview) sinks() error {
	question, usual := "First destination: "+strings.Join(sinkKinds, ", "), "file"
	for {
		kind, err := i.answer(question, usual)
		if err != nil || kind == "" || kind == "-" {
			return err
		}
		if !slices.Contains(sinkKinds, kind) {
			i.say("  it is one of %s", strings.Join(sinkKinds, ", "))
			continue
		}
		if err := i.sink(kind); err != nil {
			return err
		}
		question, usual = "Another destination (empty: no more)", ""
	}
}

func (i *interview) sink(kind string) error {
	s := &draftSink{Kind: kind}
	i.draft.Sinks = append(i.draft.Sinks, s)
	at := fmt.Sprintf("sinks[%d].", len(i.draft.Sinks)-1)
	for _, q := range sinkQuestions[kind] {
		f := &draftField{Name: q.field, List: q.list}
		s.Fields = append(s.Fields, f)
		ask, field := i.ask, at+kind+"."+q.field
		if q.secret {
			ask = i.secret
		}
		if kind == "file" {
			q.usual = filepath.Join(i.draft.DataDir, q.usual)
		}
		if err := ask(field, q.text, q.usual, &f.Value); err != nil {
			return err
		}
	}
	return i.ask(at+"name", "Its name, for good", cmp.Or(map[string]string{"file": "archive"}[kind], kind), &s.Name)
}

var variables = regexp.MustCompile(`\$\{([A-Z_][A-Z0-9_]*)\}`)

// next says what to do with the written file.
func (i *interview) next() error {
	_, warnings, err := i.kinds.CheckText(i.file, i.draft.text(), orSetLater)
	if err != nil {
		return fmt.Errorf("%s is written, and wants a correction: %w", i.file, err)
	}
	return printAs(i.out, false, warnings, func(p *page, warnings []config.Problem) {
		p.line("\nwrote %s, and %s next to it for editors", i.file, schemaFile)
		p.problems(i.file, nil, warnings)
		p.line("\nNext:")
		var told []string
		for _, m := range variables.FindAllStringSubmatch(string(i.draft.text()), -1) {
			if _, set := os.LookupEnv(m[1]); !set && !slices.Contains(told, m[1]) {
				p.line("  export %s=…", m[1])
				told = append(told, m[1])
			}
		}
		p.line("  auditrelay config check --api %s      # ask the workspace, and change nothing", i.file)
		p.line("  auditrelay sinks check --config %s    # try each destination", i.file)
		p.line("  auditrelay run --config %s", i.file)
	})
}
