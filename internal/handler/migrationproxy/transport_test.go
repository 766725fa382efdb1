package migrationproxy

import (
	"fmt"
	"strings"
	"testing"

	"drydock.dev/drydock/internal/contracts/migrationwire"
)

type heardBy chan migrationwire.Transport

func (h heardBy) add(t migrationwire.Transport) { h <- t }

// TestTheTransportIsAgreedOn: on each connection, by both sides.
func TestTheTransportIsAgreedOn(t *testing.T) {
	p := meet(t)
	offered, agreed := make(heardBy, 10), make(heardBy, 10)
	var ofSource, ofTarget Facts
	x := p.expected(&ofTarget, newEar())
	x.Target.HeardOffer = offered.add
	t.Cleanup(p.expectations.Expect(x))
	ofSource.PublishTransport(migrationwire.Offer, migrationwire.Transport{Channels: 4})
	ofTarget.PublishTransport(migrationwire.Agreed, migrationwire.Transport{Channels: 2})
	ofTarget.PublishTransport(migrationwire.Agreed, migrationwire.Transport{Channels: 3}) // the first one counts
	for range 2 {
		stop := p.talk(p.outgoing(), Conversation{Mine: &ofSource, Heard: newEar().heard, HeardAgreed: agreed.add})
		if got := <-offered; got.Channels != 4 {
			t.Errorf("the target hears of %d channels", got.Channels)
		}
		if got := <-agreed; got.Channels != 2 {
			t.Errorf("the source hears of %d channels", got.Channels)
		}
		stop()
	}
	if len(offered)+len(agreed) > 0 {
		t.Errorf("%d more are heard", len(offered)+len(agreed))
	}
}

// TestASourceFromBeforeThereWasAChoiceOffersOneConnection: it sends nothing about it.
func TestASourceFromBeforeThereWasAChoiceOffersOneConnection(t *testing.T) {
	for version, wants := range map[int]bool{1: true, migrationwire.AgreesTransport - 1: true, migrationwire.AgreesTransport: false} {
		t.Run(fmt.Sprintf("version %d", version), func(t *testing.T) {
			p := meet(t)
			offered := make(heardBy, 1)
			x := p.expected(&Facts{}, newEar())
			x.Target.HeardOffer = offered.add
			t.Cleanup(p.expectations.Expect(x))
			conn := p.raw()
			control := header
			control.Version, control.Channel = version, migrationwire.Control
			if err := migrationwire.Write(conn, control); err != nil {
				t.Fatal(err)
			}
			if err := migrationwire.Read(conn, &migrationwire.Answer{}); err != nil {
				t.Fatal(err)
			}
			if got := len(offered) > 0; got != wants {
				t.Fatalf("it has offered one connection: %v", got)
			}
			if wants && <-offered != (migrationwire.Transport{}) {
				t.Error("it offers several")
			}
		})
	}
}

// Another node sends it, so it may be invalid.
func TestATransportThatIsNoneEndsTheConnection(t *testing.T) {
	p := meet(t)
	offered := make(heardBy, 1)
	x := p.expected(&Facts{}, newEar())
	x.Target.HeardOffer = offered.add
	t.Cleanup(p.expectations.Expect(x))
	conn := p.raw()
	control := header
	control.Version, control.Channel = migrationwire.Version, migrationwire.Control
	for _, frame := range []any{control, migrationwire.Message{Kind: migrationwire.Offer, MigrationUID: header.MigrationUID, Transport: &migrationwire.Transport{Channels: 1000}}} {
		if err := migrationwire.Write(conn, frame); err != nil {
			t.Fatal(err)
		}
	}
	if err := migrationwire.Read(conn, &migrationwire.Answer{}); err != nil {
		t.Fatal(err)
	}
	var message migrationwire.Message
	for err := error(nil); err == nil; err = migrationwire.Read(conn, &message) {
		if strings.HasPrefix(string(message.Kind), "O") {
			t.Errorf("the target says %+v", message)
		}
	}
	if len(offered) > 0 {
		t.Errorf("it is taken for %+v", <-offered)
	}
}
