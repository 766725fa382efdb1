// Package keepalive pings the other end of a WebSocket, and answers its pings. It must send no other frames.
//
// A missing pong ends nothing: a viewer whose terminal is stopped answers late, and TCP detects a lost peer. Frames have
// no deadline: an expired one breaks a TLS connection for good, and may expire on a busy machine before the write.
package keepalive

import (
	"time"

	"github.com/gorilla/websocket"
)

// Frames are one connection's pings and pongs.
type Frames struct {
	ws    *websocket.Conn
	pings chan string
}

// New returns a connection's Frames. It must be called before the connection is read.
func New(ws *websocket.Conn) *Frames {
	f := &Frames{ws: ws, pings: make(chan string, 1)}
	ws.SetPingHandler(f.pinged)
	return f
}

// Only one of several pending pings is answered (RFC 6455, 5.5.3).
func (f *Frames) pinged(data string) error {
	select {
	case f.pings <- data:
	default:
	}
	return nil
}

// Run pings at each interval and answers pings, until done is closed or the connection breaks. An end that reads nothing
// may still write.
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
