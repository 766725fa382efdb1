package server

import (
	"bytes"
	"encoding/json"
	"image/png"
	"io"
	"net/http"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"drydock.dev/drydock/internal/contracts/nodeapi"
)

const (
	vncHello  = "RFB 003.008\n\x01\x01\x00\x00\x00\x00"
	vncScreen = "0123456789abcdef\x00\x00\x00\x04name"
	vncPixels = "\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x02\x00\x01\x00\x00\x00\x00" + "\x03\x02\x01\x00\xff\xff\xff\x00"
)

func screenshotOf(t *testing.T, says string) (code int, body string) {
	t.Helper()
	m := &recorder{}
	s := newServer(t, m)
	go func() {
		guest := <-m.dialed
		go func() { _, _ = io.Copy(io.Discard, guest) }()
		_, _ = io.WriteString(guest, says)
	}()
	path := nodeapi.Path("ns", "vm", "u1", nodeapi.Screenshot)
	path.RawQuery += "&" + nodeapi.MoveCursorQuery + "=true"
	return call(t, s, http.MethodGet, path.String())
}

func TestScreenshot(t *testing.T) {
	code, body := screenshotOf(t, vncHello+"\x00\x02\x00\x01"+vncScreen+vncPixels)
	if code != http.StatusOK {
		t.Fatalf("%d %s", code, body)
	}
	picture, err := png.Decode(bytes.NewBufferString(body))
	if err != nil {
		t.Fatal(err)
	}
	if size := picture.Bounds().Size(); size.X != 2 || size.Y != 1 {
		t.Errorf("the picture has %v pixels", size)
	}
	if r, g, b, _ := picture.At(0, 0).RGBA(); r>>8 != 1 || g>>8 != 2 || b>>8 != 3 {
		t.Errorf("the first pixel is %d %d %d", r>>8, g>>8, b>>8)
	}
}

// A guest must not control virt-handler's allocations.
func TestAScreenThatIsTooLarge(t *testing.T) {
	code, body := screenshotOf(t, vncHello+"\x1e\x00\x10\xe0"+vncScreen) // 7680 by 4320
	var status metav1.Status
	if err := json.Unmarshal([]byte(body), &status); err != nil {
		t.Fatal(err)
	}
	want := "Internal error occurred: taking a picture of the guest's screen: beginning to look at the screen: the screen of 7680 by 4320 pixels is too large"
	if code != http.StatusInternalServerError || status.Message != want {
		t.Errorf("%d %q", code, status.Message)
	}
}

// A guest whose screen never comes must not fill the queue of the node's other guests.
func TestAGuestHasOnePictureAtATime(t *testing.T) {
	m := &recorder{}
	s := newServer(t, m)
	path := nodeapi.Path("ns", "vm", "u1", nodeapi.Screenshot).String()
	first := make(chan int, 1)
	go func() {
		response, err := s.Client().Get(s.URL + path)
		if err != nil {
			first <- 0
			return
		}
		_ = response.Body.Close()
		first <- response.StatusCode
	}()
	guest := <-m.dialed
	if code, body := call(t, s, http.MethodGet, path); code != http.StatusTooManyRequests || !strings.Contains(body, "of VMI vm is being taken") {
		t.Errorf("a second picture is answered %d %s", code, body)
	}
	go func() { _, _ = io.Copy(io.Discard, guest) }()
	_, _ = io.WriteString(guest, vncHello+"\x00\x02\x00\x01"+vncScreen+vncPixels)
	if code := <-first; code != http.StatusOK {
		t.Errorf("the first one is answered %d", code)
	}
}
