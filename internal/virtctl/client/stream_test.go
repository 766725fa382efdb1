package client

import (
	"context"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/gorilla/websocket"
	"k8s.io/client-go/rest"

	"drydock.dev/drydock/internal/contracts/nodeapi"
	"drydock.dev/drydock/test/starved"
)

func TestAPingBreaksNoConnectionOfABusyClient(t *testing.T) {
	ponged := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		upgrader := websocket.Upgrader{Subprotocols: []string{nodeapi.StreamProtocol}}
		ws, err := upgrader.Upgrade(w, r, nil)
		if err != nil {
			t.Error(err)
			return
		}
		defer func() { _ = ws.Close() }()
		ws.SetPongHandler(func(data string) error {
			ponged <- data
			return nil
		})
		if err := ws.WriteControl(websocket.PingMessage, []byte("ping 1"), time.Time{}); err != nil {
			t.Error(err)
		}
		for {
			kind, data, err := ws.ReadMessage()
			if err != nil {
				return
			}
			_ = ws.WriteMessage(kind, data) // the client notices
		}
	}))
	defer server.Close()
	c, err := New(&rest.Config{Host: server.URL, Dial: func(ctx context.Context, network, address string) (net.Conn, error) {
		conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
		return &starved.Conn{Conn: conn}, err
	}})
	if err != nil {
		t.Fatal(err)
	}
	conn, err := c.Stream(t.Context(), Ref{Resource: VirtualMachineInstances, Namespace: "ns", Name: "machine"}, "console")
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = conn.Close() }()
	// The server's message before its echo, the ping, has been read when the echo comes.
	for data := ""; data == ""; {
		echo := make([]byte, 1)
		if _, err := conn.Write([]byte("x")); err != nil {
			t.Fatalf("writing after a ping: %v", err)
		}
		if _, err := io.ReadFull(conn, echo); err != nil {
			t.Fatalf("reading after a ping: %v", err)
		}
		select {
		case data = <-ponged:
			if data != "ping 1" {
				t.Errorf("the ping was answered by %q", data)
			}
		default:
		}
	}
}
