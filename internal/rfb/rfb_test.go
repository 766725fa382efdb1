package rfb

import (
	"bytes"
	"context"
	"image"
	"image/color"
	"io"
	"net"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"drydock.dev/drydock/test/accelerator"
	"drydock.dev/drydock/test/shipped"
)

// The machine has no disk, which its firmware shows.
func TestPictureOfARealQEMU(t *testing.T) {
	socket := filepath.Join(t.TempDir(), "vnc.sock")
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	qemu := exec.CommandContext(ctx, shipped.Program(t, "qemu-system-x86_64"), "-machine", "q35,accel="+accelerator.Of(t), "-nodefaults", "-device", "VGA",
		"-display", "none", "-m", "32", "-vnc", "unix:"+socket)
	var stderr bytes.Buffer
	qemu.Stderr = &stderr
	if err := qemu.Start(); err != nil {
		t.Fatalf("starting QEMU: %v", err)
	}
	defer func() {
		cancel()
		_ = qemu.Wait() // it was killed
	}()
	for tick := time.Tick(20 * time.Millisecond); ; {
		conn, err := (&net.Dialer{}).DialContext(ctx, "unix", socket)
		if err != nil && ctx.Err() != nil {
			t.Fatalf("QEMU offers no screen: %v\n%s", err, stderr.String())
		}
		if err != nil {
			<-tick // QEMU makes its socket when it is ready
			continue
		}
		picture, err := Picture(conn, Options{MoveCursor: true})
		_ = conn.Close()
		if err != nil {
			t.Fatal(err)
		}
		size := picture.Bounds().Size()
		if size.X < 320 || size.Y < 200 {
			t.Fatalf("the screen has %v pixels", size)
		}
		for y := range size.Y {
			for x := range size.X {
				if r, g, b, _ := picture.At(x, y).RGBA(); r+g+b > 0 {
					return // the firmware has written something
				}
			}
		}
		if ctx.Err() != nil {
			t.Fatal("the screen stays black")
		}
	}
}

// script plays a server that sends its texts whatever it receives.
type script struct {
	io.Reader
	io.Writer
}

const (
	hello  = "RFB 003.008\n\x01\x01\x00\x00\x00\x00"
	screen = "\x00\x02\x00\x01" + "0123456789abcdef" + "\x00\x00\x00\x04name" // 2 by 1 pixels
	rect   = "\x00\x00\x00\x00\x00\x02\x00\x01\x00\x00\x00\x00"
	pixels = "\x03\x02\x01\x00\xff\xff\xff\x00"
)

func TestPictureReadsWhatServersSendBetween(t *testing.T) {
	bellRung := "\x02"
	cut := "\x03\x00\x00\x00\x00\x00\x00\x03abc"
	colors := "\x01\x00\x00\x00\x00\x01\x00\x00\x00\x00\x00\x00"
	half := func(x, pixel string) string {
		return "\x00\x00\x00\x01\x00" + x + "\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00" + pixel
	}
	server := hello + screen + bellRung + cut + half("\x00", pixels[:4]) + colors + half("\x01", pixels[4:])
	picture, err := Picture(script{strings.NewReader(server), io.Discard}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := picture.At(0, 0), (color.NRGBA{1, 2, 3, 255}); got != want {
		t.Errorf("the first pixel is %v, want %v", got, want)
	}
	if got, want := picture.At(1, 0), (color.NRGBA{255, 255, 255, 255}); got != want {
		t.Errorf("the second pixel is %v, want %v", got, want)
	}
}

// The guest leaves its firmware's screen before the first picture was sent.
func TestPictureOfAScreenThatShrinks(t *testing.T) {
	smaller := "\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x01\x00\x01\xff\xff\xff\x21"
	onePixel := "\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x01\x00\x01\x00\x00\x00\x00" + pixels[:4]
	var asked bytes.Buffer
	picture, err := Picture(script{strings.NewReader(hello + screen + smaller + onePixel), &asked}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	if got, want := picture.Bounds().Size(), (image.Point{X: 1, Y: 1}); got != want {
		t.Errorf("the picture has %v pixels, want %v", got, want)
	}
	if whole := "\x03\x00\x00\x00\x00\x00\x00\x01\x00\x01"; !strings.HasSuffix(asked.String(), whole) {
		t.Errorf("the smaller screen was not asked for: %q", asked.String())
	}
}

func TestPictureSaysWhatIsWrong(t *testing.T) {
	for name, c := range map[string]struct{ server, want string }{
		"not RFB":               {"HTTP/1.1 400", "which is not RFB"},
		"a password":            {"RFB 003.008\n\x01\x02", "asks for a password"},
		"a refusal":             {"RFB 003.008\n\x00\x00\x00\x00\x04busy", "the server refuses: busy"},
		"a late refusal":        {"RFB 003.008\n\x01\x01\x00\x00\x00\x01\x00\x00\x00\x02no", "the server refuses: no"},
		"a huge screen":         {hello + "\xff\xff\xff\xff" + screen[4:], "too large"},
		"paint outside":         {hello + screen + "\x00\x00\x00\x01" + "\x00\x01" + rect[2:], "outside its screen"},
		"another encoding":      {hello + screen + "\x00\x00\x00\x01" + rect[:11] + "\x05", "encoding 5"},
		"an empty update":       {hello + screen + "\x00\x00\x00\x00", "without content"},
		"an unknown message":    {hello + screen + "\x63", "unknown type 99"},
		"an end in the picture": {hello + screen + "\x00\x00\x00\x01" + rect + pixels[:5], "EOF"},
	} {
		t.Run(name, func(t *testing.T) {
			_, err := Picture(script{strings.NewReader(c.server), io.Discard}, Options{})
			if err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("got %v; want an error with %q", err, c.want)
			}
		})
	}
}

func FuzzPicture(f *testing.F) {
	f.Add([]byte(hello + screen + "\x00\x00\x00\x01" + rect + pixels))
	f.Fuzz(func(t *testing.T, server []byte) {
		picture, err := Picture(script{bytes.NewReader(server), io.Discard}, Options{MoveCursor: true})
		if (picture == nil) == (err == nil) {
			t.Errorf("got %v and %v; want one of them", picture, err)
		}
	})
}
