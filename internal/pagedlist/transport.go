package pagedlist

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"k8s.io/client-go/rest"
)

var errTooLarge = errors.New("the page of a list has too many bytes")

// roomKey is that of a request's room in its context: the bytes that the answer may have, an int64.
type roomKey struct{}

// bounded bounds the answer to a request for that many objects.
func bounded(ctx context.Context, objects int64) context.Context {
	if objects == 1 {
		return ctx
	}
	return context.WithValue(ctx, roomKey{}, int64(pageBytes))
}

// Bound bounds the pages of the lists that are made with the configuration. It must be called before a client is made.
func Bound(config *rest.Config) {
	config.Wrap(func(next http.RoundTripper) http.RoundTripper { return transport{next} })
}

type transport struct{ next http.RoundTripper }

// RoundTrip reads the whole answer: client-go would log an error about a body that ends early.
func (t transport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := t.next.RoundTrip(request)
	room, isBounded := request.Context().Value(roomKey{}).(int64)
	if err != nil || !isBounded {
		return response, err
	}
	var body bytes.Buffer
	_, err = body.ReadFrom(io.LimitReader(response.Body, room+1))
	_ = response.Body.Close() // what has arrived is enough
	if err != nil {
		return nil, err
	}
	if int64(body.Len()) > room {
		return nil, errTooLarge
	}
	response.Body = io.NopCloser(&body)
	return response, nil
}

// WrappedRoundTripper lets client-go find the transport below.
func (t transport) WrappedRoundTripper() http.RoundTripper { return t.next }
