// Package stream shares a guest's console, screen and TCP ports between clients: WebSockets on one side, QEMU's unix
// sockets and the guest's ports on the other.
//
// A client can't stall a guest, and an idle stream stays open. The package must not decide who may connect, and must
// not know a VMI: it has keys and functions that dial.
package stream

import (
	"context"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/gorilla/websocket"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/internal/keepalive"
)

const (
	// chunk is the size of a console's read and of a client's write buffer, in bytes.
	chunk = 32 << 10
	// maxDatagram is the largest UDP datagram, so that none is truncated.
	maxDatagram = 64 << 10
	// maxMessage limits one frame of a client, in bytes.
	maxMessage = 1 << 20
	// pingPeriod keeps an idle stream alive in proxies on the way, whose timeouts are 30 seconds or longer.
	pingPeriod = 20 * time.Second
	// closeGrace limits the write of the last frame.
	closeGrace = 15 * time.Second
)

// Client is one viewer's WebSocket.
type Client struct {
	ws    *websocket.Conn
	alive *keepalive.Frames
}

// They are shared by all clients: most are idle most of the time and need none.
var writeBuffers = &sync.Pool{}

// Accept upgrades an HTTP request to a Client. On an error, refuse has written the answer.
func Accept(w http.ResponseWriter, r *http.Request, refuse func(w http.ResponseWriter, status int, err error)) (*Client, error) {
	upgrader := websocket.Upgrader{
		ReadBufferSize:  4 << 10,
		WriteBufferSize: chunk,
		WriteBufferPool: writeBuffers,
		Subprotocols:    []string{nodeapi.StreamProtocol},
		// virt-api has authenticated the user by a credential that a browser does not send by itself.
		CheckOrigin: func(*http.Request) bool { return true },
		Error: func(w http.ResponseWriter, _ *http.Request, status int, reason error) {
			refuse(w, status, reason)
		},
	}
	ws, err := upgrader.Upgrade(w, r, nil)
	if err != nil {
		return nil, err
	}
	ws.SetReadLimit(maxMessage)
	return &Client{ws: ws, alive: keepalive.New(ws)}, nil
}

// Splice copies bytes between the client and conn until one of them or ctx ends, and closes both. A frame of the client
// is one write, and a read is one frame: datagrams keep their boundaries.
func Splice(ctx context.Context, client *Client, conn net.Conn) {
	client.serve(ctx, func() { _ = conn.Close() },
		func(context.Context) {
			for {
				data, ok := client.read()
				if !ok {
					return
				}
				if _, err := conn.Write(data); err != nil {
					return
				}
			}
		},
		func(context.Context) {
			buffer := make([]byte, maxDatagram)
			for {
				n, err := conn.Read(buffer)
				if n > 0 && !client.write(buffer[:n]) {
					return
				}
				if err != nil {
					return
				}
			}
		},
	)
}

// serve runs the parts of a stream until the first of them or ctx ends. Then it calls release and closes the client,
// which must end the others, and waits for them.
func (c *Client) serve(ctx context.Context, release func(), parts ...func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	parts = append(parts, func(ctx context.Context) { c.alive.Run(ctx.Done(), pingPeriod) })
	for _, part := range parts {
		running.Go(func() {
			defer cancel()
			part(ctx)
		})
	}
	<-ctx.Done()
	release()
	c.close()
	running.Wait()
}

// ok is false once the client has gone.
func (c *Client) read() (data []byte, ok bool) {
	_, data, err := c.ws.ReadMessage()
	return data, err == nil
}

// write sends one binary frame, and blocks as long as the client does. ok is false once the client has gone.
func (c *Client) write(data []byte) (ok bool) {
	return c.ws.WriteMessage(websocket.BinaryMessage, data) == nil
}

// close sends a normal close frame, which clients don't take for an error.
func (c *Client) close() {
	deadline := time.Now().Add(closeGrace)
	// A slow client must not block the end.
	_ = c.ws.NetConn().SetWriteDeadline(deadline)
	goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = c.ws.WriteControl(websocket.CloseMessage, goodbye, deadline)
	_ = c.ws.Close()
}
