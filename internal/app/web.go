package app

import (
	"context"
	"errors"
	"net/http"
	"time"

	"github.com/auditrelay/auditrelay/internal/control/console"
	"github.com/auditrelay/auditrelay/internal/control/web"
	"github.com/auditrelay/auditrelay/internal/ingest/connlimit"
	"github.com/auditrelay/auditrelay/internal/workspace"
)

// webConnections bounds the browsers' connections.
const webConnections = 64

// startWeb serves the console in the browser, if it is configured.
func (c *control) startWeb(ctx context.Context) (err error) {
	listen := c.cfg().Console.Listen
	if listen == "" {
		return nil
	}
	c.web = web.New(web.Options{Status: c.admin.Status, Logger: c.log})
	server := &http.Server{
		Handler: c.web, ReadHeaderTimeout: 5 * time.Second, ReadTimeout: 10 * time.Second,
		WriteTimeout: 30 * time.Second, IdleTimeout: time.Minute,
	}
	c.webAddress, err = c.serve(ctx, &c.stack, listen, nil, server, connlimit.Options{Name: "console", Total: webConnections})
	return err
}

// openWeb makes a link into the console for a person at the command line.
func (c *control) openWeb(by workspace.Person) (console.Opened, error) {
	if c.web == nil {
		return console.Opened{}, errors.New("this relay has no console: set console.listen in its configuration, such as 127.0.0.1:9180, and restart it")
	}
	path, until := c.web.Link(by)
	return console.Opened{URL: "http://" + c.webAddress + path, Until: until}, nil
}
