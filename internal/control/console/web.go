package console

import (
	"context"
	"net/http"
	"time"
)

// Opened is a link into the console in the browser.
type Opened struct {
	// URL logs in whoever opens it first, until Until.
	URL   string    `json:"url"`
	Until time.Time `json:"until"`
}

func (s *Server) openWeb(ctx context.Context, _ none) (Opened, error) {
	opened, err := s.opts.OpenWeb(personOf(ctx))
	if err != nil {
		return opened, refuse(http.StatusConflict, "%v", err)
	}
	return opened, nil
}

// OpenWeb asks for a link into the console in the browser.
func (c *Client) OpenWeb(ctx context.Context) (opened Opened, err error) {
	return opened, c.ask(ctx, http.MethodPost, "/v1/console/open", &opened)
}
