// Command guestd is the only program that Drydock's test guest adds to busybox. As init it is the first process; as
// guestd it brings the guest up and serves it: mounts, drivers, network, cloud-init, logins. As acpid it handles the
// power button. Under other names it is one of the commands that tests type in the guest: guestinfo, disksoak,
// diskjournal, diskcount, tpmsend, tpmkey, tpmseal, tpmunseal, panic, shutdown and chpasswd.
//
// It runs only in the guest and must know nothing of Drydock or Kubernetes. It is linked statically and must stay
// small: every guest loads it.
package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
)

// commands has the program's functions by the name under which it is called.
var commands = map[string]func(ctx context.Context, args []string) error{
	"init":        initProcess,
	"guestd":      serve,
	"acpid":       watchPowerButton,
	"modprobe":    modprobe,
	"guestinfo":   guestInfo,
	"disksoak":    diskSoak,
	"diskjournal": diskJournal,
	"diskcount":   diskCount,
	"tpmsend":     tpmSend,
	"tpmkey":      tpmKey,
	"tpmseal":     tpmSeal,
	"tpmunseal":   tpmUnseal,
	"panic":       crash,
	"shutdown":    shutdown,
	"chpasswd":    chpasswd,
}

func main() {
	name := filepath.Base(os.Args[0])
	command, known := commands[name]
	if !known {
		fmt.Fprintf(os.Stderr, "guestd: no command has the name %s\n", name)
		os.Exit(1)
	}
	if err := command(context.Background(), os.Args[1:]); err != nil {
		fmt.Fprintf(os.Stderr, "%s: %v\n", name, err)
		os.Exit(1)
	}
}
