package server

import (
	"context"
	"errors"
	"fmt"
	"image/png"
	"net/http"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/rfb"
)

// The guest chooses the size of its screen, at four bytes per pixel: more than 4K is refused, and pictures are taken
// one at a time.
const (
	maxPicture     = 3840 * 2160
	pictureTimeout = 25 * time.Second
)

func (s *Server) screenshot(m Machine, w http.ResponseWriter, r *http.Request) error {
	// One guest's screen, which may never come, must not be first in the queue of all.
	key := streamKey{machine: m.ConsoleKey(), verb: nodeapi.Screenshot}
	if !s.streams.begin(key, 1) {
		return apierrors.NewTooManyRequests(fmt.Sprintf("a picture of the screen of VMI %s is being taken; try again when it is done", r.PathValue("name")), 1)
	}
	defer s.streams.end(key)
	ctx, cancel := context.WithTimeoutCause(r.Context(), pictureTimeout, errors.New("the screen did not come in time"))
	defer cancel()
	select {
	case s.pictures <- struct{}{}:
		defer func() { <-s.pictures }()
	case <-ctx.Done():
		return apierrors.NewTooManyRequests("other pictures are being taken on this node; try again", 1)
	}
	conn, err := m.DialVNC(ctx)
	if err != nil {
		return fmt.Errorf("connecting to the screen of the guest: %w", err)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.Close() })()
	picture, err := rfb.Picture(conn, rfb.Options{MoveCursor: r.URL.Query().Get(nodeapi.MoveCursorQuery) == "true", MaxPixels: maxPicture})
	_ = conn.Close()
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return fmt.Errorf("taking a picture of the guest's screen: %w", err)
	}
	// A slow reader blocks other pictures.
	response := http.NewResponseController(w)
	if err := response.SetWriteDeadline(time.Now().Add(pictureTimeout)); err != nil {
		return fmt.Errorf("answering with a picture: %w", err)
	}
	// The connection may serve other requests.
	defer func() { _ = response.SetWriteDeadline(time.Time{}) }()
	w.Header().Set("Content-Type", "image/png")
	encoder := png.Encoder{CompressionLevel: png.BestSpeed}
	// An error means that the caller has gone.
	_ = encoder.Encode(w, picture)
	return nil
}
