package client

import (
	"context"
	"encoding/json"
	"fmt"
	"net"
	"net/url"

	"github.com/gorilla/websocket"
)

// attachProtocol is Kubernetes's protocol for a container's streams: the first byte of a message identifies the
// stream.
const attachProtocol = "v5.channel.k8s.io"

// The streams.
const (
	stdinChannel, stdoutChannel, stderrChannel = 0, 1, 2
	statusChannel                              = 3 // the end, as a Status
	resizeChannel                              = 4
)

// Size is a terminal's, in characters.
type Size struct{ Width, Height int }

// Attach connects to a container's terminal. A size of zero does not resize it.
func (c *Client) Attach(ctx context.Context, namespace, pod, container string, size Size) (net.Conn, error) {
	target, err := c.streamURL([]string{"/api/v1/namespaces", namespace, "pods", pod, "attach"})
	if err != nil {
		return nil, err
	}
	target.RawQuery = url.Values{
		"container": {container}, "stdin": {"true"}, "stdout": {"true"}, "tty": {"true"},
	}.Encode()
	conn, err := c.upgrade(ctx, target, attachProtocol)
	if err != nil {
		return nil, err
	}
	t := &terminal{stream: newStream(conn)}
	if size.Width > 0 && size.Height > 0 {
		var text []byte
		if text, err = json.Marshal(size); err == nil {
			err = t.WriteMessage(websocket.BinaryMessage, append([]byte{resizeChannel}, text...))
		}
	}
	if err != nil {
		_ = t.Close()
		return nil, fmt.Errorf("setting the size of the terminal: %w", err)
	}
	return t, nil
}

type terminal struct {
	*stream
	left []byte
}

// Read skips other messages: the exit status is also in the pod's status.
func (t *terminal) Read(p []byte) (int, error) {
	for len(t.left) == 0 {
		_, message, err := t.ReadMessage()
		if err != nil {
			return 0, endOfStream(err)
		}
		if len(message) > 0 && (message[0] == stdoutChannel || message[0] == stderrChannel) {
			t.left = message[1:]
		}
	}
	n := copy(p, t.left)
	t.left = t.left[n:]
	return n, nil
}

// Write sends input.
func (t *terminal) Write(p []byte) (int, error) {
	n, err := t.stream.Write(append([]byte{stdinChannel}, p...))
	return max(0, n-1), err
}
