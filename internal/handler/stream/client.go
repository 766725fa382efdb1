// Package stream owns the sharing of a guest's console, screen and TCP ports
// between the clients that look at them: WebSockets on one side, QEMU's unix
// sockets and the guest's ports on the other.
//
// A client is never able to stall a guest, and an idle stream stays open. The
// package decides nothing about who may look; it knows no VMI, only keys and
// functions that dial.
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
	// chunk is the size of a console's read and of a client's write buffer.
	chunk = 32 << 10
	// maxDatagram is the largest that UDP carries, so that none is cut.
	maxDatagram = 64 << 10
	// maxMessage bounds what one frame of a client can make us hold.
	maxMessage = 1 << 20
	// pingPeriod keeps the proxies between a client and us from taking an idle
	// stream for a dead one; those that do so wait 30 seconds at least.
	pingPeriod = 20 * time.Second
	// closeGrace is how long a last frame may take to be written.
	closeGrace = 15 * time.Second
)

// Client is one viewer's WebSocket.
type Client struct {
	ws    *websocket.Conn
	alive *keepalive.Frames
}

// writeBuffers are shared by all clients: most of them are idle most of the
// time and need none.
var writeBuffers = &sync.Pool{}

// Accept turns an HTTP request into a Client. If it can't, refuse has written
// the answer.
func Accept(w http.ResponseWriter, r *http.Request, refuse func(w http.ResponseWriter, status int, err error)) (*Client, error) {
	upgrader := websocket.Upgrader{
		ReadBufferSize:  4 << 10,
		WriteBufferSize: chunk,
		WriteBufferPool: writeBuffers,
		Subprotocols:    []string{nodeapi.StreamProtocol},
		// The request comes from virt-api, which has authenticated the user by
		// something that a browser does not send by itself.
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

// Splice passes bytes between the client and conn until one of them ends or
// ctx does, and closes both. One frame of the client is one write, and one
// read is one frame, so that datagrams keep their bounds.
func Splice(ctx context.Context, client *Client, conn net.Conn) {
	client.serve(ctx, func() { _ = conn.Close() },
		func(context.Context) { client.sendTo(conn) },
		func(context.Context) { client.receiveFrom(conn) },
	)
}

// serve runs the parts of a stream until the first of them has ended, or ctx
// has. Then it calls release and closes the client, which must end the others,
// and waits for them.
func (c *Client) serve(ctx context.Context, release func(), parts ...func(context.Context)) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var running sync.WaitGroup
	for _, part := range append(parts, c.keepAlive) {
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

// keepAlive pings the client and answers its pings until ctx ends.
func (c *Client) keepAlive(ctx context.Context) { c.alive.Run(ctx.Done(), pingPeriod) }

// read returns the client's next frame; not ok once the client has gone.
func (c *Client) read() (data []byte, ok bool) {
	_, data, err := c.ws.ReadMessage()
	return data, err == nil
}

// write sends one binary frame and waits as long as the client takes; not ok
// once the client has gone.
func (c *Client) write(data []byte) (ok bool) {
	return c.ws.WriteMessage(websocket.BinaryMessage, data) == nil
}

// sendTo passes the client's frames on.
func (c *Client) sendTo(conn net.Conn) {
	for {
		data, ok := c.read()
		if !ok {
			return
		}
		if _, err := conn.Write(data); err != nil {
			return
		}
	}
}

// receiveFrom passes what comes from conn to the client.
func (c *Client) receiveFrom(conn net.Conn) {
	buffer := make([]byte, maxDatagram)
	for {
		n, err := conn.Read(buffer)
		if n > 0 && !c.write(buffer[:n]) {
			return
		}
		if err != nil {
			return
		}
	}
}

// close says goodbye with a regular close frame, which clients take for the
// end of the stream rather than for an error.
func (c *Client) close() {
	deadline := time.Now().Add(closeGrace)
	// A write that the client's slowness holds up must not hold up the end.
	_ = c.ws.NetConn().SetWriteDeadline(deadline)
	goodbye := websocket.FormatCloseMessage(websocket.CloseNormalClosure, "")
	_ = c.ws.WriteControl(websocket.CloseMessage, goodbye, deadline)
	_ = c.ws.Close()
}
