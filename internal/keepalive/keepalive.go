// Package keepalive pings the other end of a WebSocket, and answers its pings.
//
// It owns these frames and no others. A missing answer ends nothing: a viewer whose terminal is stopped answers late, and
// TCP itself finds out who is gone.
//
// No frame has a deadline. One that passes breaks a TLS connection for good, and on a busy machine it may pass before the
// frame is written.
package keepalive

import (
	"time"

	"github.com/gorilla/websocket"
)

// Frames are those of one connection.
type Frames struct {
	ws *websocket.Conn
	// pings has what the other end's last ping said and nobody has answered yet.
	pings chan string
}

// New has pings left to Run, since an end that reads nothing may still write. It must be called before the connection is
// read.
func New(ws *websocket.Conn) *Frames {
	f := &Frames{ws: ws, pings: make(chan string, 1)}
	ws.SetPingHandler(f.pinged)
	return f
}

// pinged keeps a ping. Of several that came meanwhile one is answered (RFC 6455, 5.5.3).
func (f *Frames) pinged(data string) error {
	select {
	case f.pings <- data:
	default:
	}
	return nil
}

// Run pings every so often and answers pings, until done is closed or the connection has broken.
func (f *Frames) Run(done <-chan struct{}, every time.Duration) {
	ticker := time.NewTicker(every)
	defer ticker.Stop()
	for {
		kind, data := websocket.PingMessage, ""
		select {
		case <-done:
			return
		case <-ticker.C:
		case data = <-f.pings:
			kind = websocket.PongMessage
		}
		if f.ws.WriteControl(kind, []byte(data), time.Time{}) != nil {
			return
		}
	}
}
