// Package promapi queries a Prometheus, for the tests and proofs of a running lab.
package promapi

import (
	"context"
	"fmt"
	"time"

	"github.com/prometheus/client_golang/api"
	promv1 "github.com/prometheus/client_golang/api/prometheus/v1"
	"github.com/prometheus/common/model"

	"github.com/plumbline/plumbline/tests/pause"
)

// Server is a Prometheus; its whole API is there too.
type Server struct{ promv1.API }

// At returns the Prometheus at a URL. It sends no request yet.
func At(url string) (*Server, error) {
	client, err := api.NewClient(api.Config{Address: url})
	if err != nil {
		return nil, err
	}
	return &Server{promv1.NewAPI(client)}, nil
}

// Vector returns the answer of an instant query, which must be a vector.
func (s *Server) Vector(ctx context.Context, expr string) (model.Vector, error) {
	return s.vectorAt(ctx, expr, time.Now())
}

func (s *Server) vectorAt(ctx context.Context, expr string, at time.Time) (model.Vector, error) {
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	answer, _, err := s.Query(ctx, expr, at)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", expr, err)
	}
	v, ok := answer.(model.Vector)
	if !ok {
		return nil, fmt.Errorf("%s answers with a %s", expr, answer.Type())
	}
	return v, nil
}

// Number returns the one value that an expression has.
func (s *Server) Number(ctx context.Context, expr string) (float64, error) {
	return s.NumberAt(ctx, expr, time.Now())
}

// NumberAt is Number at another time.
func (s *Server) NumberAt(ctx context.Context, expr string, at time.Time) (float64, error) {
	v, err := s.vectorAt(ctx, expr, at)
	if err != nil {
		return 0, err
	}
	if len(v) != 1 {
		return 0, fmt.Errorf("%s has %d values, want 1", expr, len(v))
	}
	return float64(v[0].Value), nil
}

// Await queries an expression every few seconds until it has a value.
func (s *Server) Await(ctx context.Context, deadline time.Duration, expr string) error {
	end := time.Now().Add(deadline)
	for {
		v, err := s.Vector(ctx, expr)
		if err == nil && len(v) > 0 {
			return nil
		}
		if err == nil {
			err = fmt.Errorf("%s has no value", expr)
		}
		if time.Now().After(end) {
			return fmt.Errorf("%w after %s", err, deadline)
		}
		if err := pause.For(ctx, 2*time.Second); err != nil {
			return err
		}
	}
}
