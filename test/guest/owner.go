package guest

import (
	"context"
	"crypto/rand"
	"crypto/rsa"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/pem"
	"fmt"
	"math/big"
	"os"
	"os/exec"
	"path/filepath"
	"time"

	"drydock.dev/drydock/images/debian"
)

// ownerPackages have the tools that sign programs and key lists for UEFI.
var ownerPackages = []string{"sbsigntool", "efitools"}

// authenticated has the attributes of a UEFI variable with keys: non-volatile, accessible before and after the
// operating system has taken over, and written with a time and a signature. Linux puts them before the value.
const authenticated = "\x27\x00\x00\x00"

// Owner is the owner of a guest with a key of his own for Secure Boot, which signs everything.
type Owner struct {
	tools             debian.Tree
	folder, key, cert string
}

// NewOwner makes the key, in the caller's folder.
func NewOwner(ctx context.Context, cache, folder string) (*Owner, error) {
	tools, err := debian.Extract(ctx, cache, ownerPackages)
	if err != nil {
		return nil, err
	}
	o := &Owner{tools: tools, folder: folder, key: filepath.Join(folder, "key.pem"), cert: filepath.Join(folder, "cert.pem")}
	return o, o.makeKey()
}

func (o *Owner) makeKey() error {
	key, err := rsa.GenerateKey(rand.Reader, 2048)
	if err != nil {
		return fmt.Errorf("making the owner's key: %w", err)
	}
	now := time.Now()
	template := &x509.Certificate{
		SerialNumber: big.NewInt(1), Subject: pkix.Name{CommonName: "the guest's owner"},
		NotBefore: now.Add(-time.Hour), NotAfter: now.AddDate(1, 0, 0), IsCA: true, BasicConstraintsValid: true,
	}
	cert, err := x509.CreateCertificate(rand.Reader, template, template, &key.PublicKey, key)
	if err != nil {
		return fmt.Errorf("making the owner's certificate: %w", err)
	}
	private, err := x509.MarshalPKCS8PrivateKey(key)
	if err != nil {
		return fmt.Errorf("encoding the owner's key: %w", err)
	}
	for file, block := range map[string]*pem.Block{o.key: {Type: "PRIVATE KEY", Bytes: private}, o.cert: {Type: "CERTIFICATE", Bytes: cert}} {
		if err := os.WriteFile(file, pem.EncodeToMemory(block), 0o600); err != nil {
			return fmt.Errorf("keeping the owner's key: %w", err)
		}
	}
	return nil
}

// Enrollment returns the value that the guest writes to a UEFI variable (PK, KEK or db) to enroll the owner's key. PK
// goes last: from then on the firmware demands signatures.
func (o *Owner) Enrollment(ctx context.Context, variable string) ([]byte, error) {
	list, signed := filepath.Join(o.folder, variable+".esl"), filepath.Join(o.folder, variable+".auth")
	if err := o.run(ctx, "cert-to-efi-sig-list", o.cert, list); err != nil {
		return nil, err
	}
	if err := o.run(ctx, "sign-efi-sig-list", "-k", o.key, "-c", o.cert, variable, list, signed); err != nil {
		return nil, err
	}
	text, err := os.ReadFile(signed)
	if err != nil {
		return nil, fmt.Errorf("reading the signed list of keys: %w", err)
	}
	return append([]byte(authenticated), text...), nil
}

// SignedDisk makes a disk of a built guest, with the owner's signature on boot manager and kernel.
func (o *Owner) SignedDisk(ctx context.Context, cache string, of Files) (string, error) {
	packages, err := Packages(Full)
	if err != nil {
		return "", err
	}
	tree, err := debian.Extract(ctx, cache, packages)
	if err != nil {
		return "", err
	}
	signed := map[string]string{of.Kernel: "vmlinuz", bootManager(tree): "manager.efi"}
	for from, to := range signed {
		signed[from] = filepath.Join(o.folder, to)
		if err := o.run(ctx, "sbsign", "--key", o.key, "--cert", o.cert, "--output", signed[from], from); err != nil {
			return "", err
		}
	}
	disk := filepath.Join(o.folder, "disk.qcow2")
	return disk, writeDisk(ctx, disk, diskParts{
		kernel: signed[of.Kernel], initrd: of.Initrd, bootSector: bootSectorOf(tree), bootManager: signed[bootManager(tree)], cache: cache,
	})
}

// run runs a tool of the Debian packages with the libraries of the same packages.
func (o *Owner) run(ctx context.Context, tool string, args ...string) error {
	loader, err := o.tools.Real("/lib64/ld-linux-x86-64.so.2")
	if err != nil {
		return err
	}
	libraries := o.tools.Path("/lib/x86_64-linux-gnu") + ":" + o.tools.Path("/usr/lib/x86_64-linux-gnu")
	args = append([]string{"--library-path", libraries, o.tools.Path("/usr/bin/" + tool)}, args...)
	if out, err := exec.CommandContext(ctx, loader, args...).CombinedOutput(); err != nil {
		return fmt.Errorf("signing for the guest's firmware by %s: %w\n%s", tool, err, out)
	}
	return nil
}
