package main

import (
	"context"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"strings"

	"golang.org/x/sys/unix"
)

const (
	// tpmDevice takes one command of the TPM 2.0 specification per write, and returns the response in one read.
	tpmDevice = "/dev/tpm0"
	// tpmManaged is the same TPM for programs that load keys: the kernel unloads them when it is closed.
	tpmManaged = "/dev/tpmrm0"
)

const maxTPMResponse = 4096

// Command and response are hexadecimal.
func tpmSend(_ context.Context, args []string) error {
	command, err := hex.DecodeString(strings.Join(args, ""))
	if err != nil {
		return fmt.Errorf("reading the command: %w", err)
	}
	return withTPM(tpmDevice, func(t tpm) error {
		response, err := t.send(command)
		if err == nil {
			fmt.Println(hex.EncodeToString(response))
		}
		return err
	})
}

// tpmKey prints the public part of the TPM's endorsement key, which identifies it.
func tpmKey(context.Context, []string) error {
	return withTPM(tpmManaged, func(t tpm) error {
		_, key, err := t.primary(tpmEndorsement)
		if err == nil {
			fmt.Println(hex.EncodeToString(key))
		}
		return err
	})
}

// tpmSeal seals a text, and prints data that only this TPM can unseal.
func tpmSeal(_ context.Context, args []string) error {
	return withTPM(tpmManaged, func(t tpm) error {
		parent, _, err := t.primary(tpmOwner)
		if err != nil {
			return err
		}
		response, err := t.run(tpmCreate, []uint32{parent}, sized(sized(nil), sized([]byte(strings.Join(args, " ")))), sized(unhex(sealedTemplate)), sized(nil), make([]byte, 4))
		if err != nil {
			return err
		}
		private, rest := cutSized(response)
		public, _ := cutSized(rest)
		fmt.Println(hex.EncodeToString(append(sized(private), sized(public)...)))
		return nil
	})
}

func tpmUnseal(_ context.Context, args []string) error {
	sealed, err := hex.DecodeString(strings.Join(args, ""))
	if err != nil {
		return fmt.Errorf("reading what is sealed: %w", err)
	}
	return withTPM(tpmManaged, func(t tpm) error {
		parent, _, err := t.primary(tpmOwner)
		if err != nil {
			return err
		}
		loaded, err := t.run(tpmLoad, []uint32{parent}, sealed)
		if err != nil {
			return err
		}
		response, err := t.run(tpmUnsealCommand, []uint32{binary.BigEndian.Uint32(loaded)})
		if err != nil {
			return err
		}
		text, _ := cutSized(response)
		fmt.Println(string(text))
		return nil
	})
}

// Numbers of the TPM 2.0 specification, part 2.
const (
	tpmSessions      = 0x8002
	tpmPassword      = 0x40000009
	tpmOwner         = 0x40000001
	tpmEndorsement   = 0x4000000b
	tpmCreatePrimary = 0x131
	tpmCreate        = 0x153
	tpmLoad          = 0x157
	tpmUnsealCommand = 0x15e
)

// Templates of objects, in the specification's layout: type, hash, attributes, policy, parameters, unique.
const (
	// primaryTemplate is a storage key on the curve P-256, derived from its hierarchy's seed: the same one each time.
	primaryTemplate = "0023 000b 00030072 0000 0006 0080 0043 0010 0003 0010 0000 0000"
	// sealedTemplate is data that only its parent key can unseal.
	sealedTemplate = "0008 000b 00000052 0000 0010 0000"
)

type tpm struct{ device *os.File }

func withTPM(name string, use func(tpm) error) error {
	fd, err := openTPM(name)
	if err != nil {
		return fmt.Errorf("opening the TPM: %w", err)
	}
	device := os.NewFile(uintptr(fd), name)
	return errors.Join(use(tpm{device}), device.Close())
}

// On a busy host the TPM's first answers may come later than the driver waits, which then offers no tpmManaged:
// openTPM rebinds the driver.
func openTPM(name string) (int, error) {
	const driver, device, attempts = "/sys/bus/acpi/drivers/tpm_crb/", "MSFT0101:00", 20
	for i := 0; ; i++ {
		// Package os would poll the file, and then a read does not wait for the response.
		fd, err := unix.Open(name, unix.O_RDWR|unix.O_CLOEXEC, 0)
		if !errors.Is(err, unix.ENOENT) || i == attempts {
			return fd, err
		}
		_ = os.WriteFile(driver+"unbind", []byte(device), 0) // it may be unbound
		_ = os.WriteFile(driver+"bind", []byte(device), 0)   // the device shows the result
	}
}

func (t tpm) send(command []byte) ([]byte, error) {
	if _, err := t.device.Write(command); err != nil {
		return nil, fmt.Errorf("sending the command: %w", err)
	}
	response := make([]byte, maxTPMResponse)
	n, err := t.device.Read(response)
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	return response[:n], nil
}

// run executes a command on handles, the first of which is used without a password. It returns the response without its
// header: a new handle, if there is one, and the parameters.
func (t tpm) run(code uint32, handles []uint32, parameters ...[]byte) ([]byte, error) {
	body := binary.BigEndian.AppendUint32(nil, code)
	for _, handle := range handles {
		body = binary.BigEndian.AppendUint32(body, handle)
	}
	session := append(binary.BigEndian.AppendUint32(nil, tpmPassword), make([]byte, 5)...)
	body = append(binary.BigEndian.AppendUint32(body, uint32(len(session))), session...)
	for _, parameter := range parameters {
		body = append(body, parameter...)
	}
	const tagAndSize = 6
	command := binary.BigEndian.AppendUint16(nil, tpmSessions)
	command = binary.BigEndian.AppendUint32(command, uint32(tagAndSize+len(body)))
	response, err := t.send(append(command, body...))
	if err != nil {
		return nil, err
	}
	const header = 10
	if len(response) < header {
		return nil, fmt.Errorf("the TPM answers the command %#x with %d bytes", code, len(response))
	}
	if result := binary.BigEndian.Uint32(response[tagAndSize:]); result != 0 {
		return nil, fmt.Errorf("the TPM answers the command %#x with the error %#x", code, result)
	}
	response = response[header:]
	if code == tpmLoad || code == tpmCreatePrimary {
		return response, nil
	}
	return response[4:], nil // the parameters' size
}

func (t tpm) primary(hierarchy uint32) (handle uint32, public []byte, err error) {
	response, err := t.run(tpmCreatePrimary, []uint32{hierarchy}, sized(sized(nil), sized(nil)), sized(unhex(primaryTemplate)), sized(nil), make([]byte, 4))
	if err != nil {
		return 0, nil, err
	}
	public, _ = cutSized(response[8:])
	return binary.BigEndian.Uint32(response), public, nil
}

// The length comes first.
func sized(parts ...[]byte) []byte {
	var body []byte
	for _, part := range parts {
		body = append(body, part...)
	}
	return append(binary.BigEndian.AppendUint16(nil, uint16(len(body))), body...)
}

func cutSized(data []byte) (buffer, rest []byte) {
	n := 2 + int(binary.BigEndian.Uint16(data))
	return data[2:n], data[n:]
}

// The template is a valid constant.
func unhex(digits string) []byte {
	data, err := hex.DecodeString(strings.ReplaceAll(digits, " ", ""))
	if err != nil {
		panic(err)
	}
	return data
}
