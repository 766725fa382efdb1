// Package quantity validates the amounts that users write, so that calculations with them do not overflow. It owns the
// minimum and maximum of each sort, and the parsing of page sizes. It must not know the fields of the amounts.
package quantity

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The maxima exceed any machine and are small enough for sums.
var (
	mostMemory  = resource.MustParse("16Ti")
	mostStorage = resource.MustParse("1Ei")
	mostCPUs    = resource.MustParse("65536")
)

// The sizes of huge pages (x86-64).
var pages = []resource.Quantity{resource.MustParse("2Mi"), resource.MustParse("1Gi")}

// Memory validates an amount of memory.
func Memory(q resource.Quantity) error {
	if q.Sign() <= 0 || q.Cmp(mostMemory) > 0 || !whole(q) {
		return errors.New("must be an amount of memory: whole bytes, more than 0 and at most 16Ti")
	}
	return nil
}

// Storage validates the size of a disk.
func Storage(q resource.Quantity) error {
	if q.Sign() <= 0 || q.Cmp(mostStorage) > 0 {
		return errors.New("must be greater than zero and at most 1Ei")
	}
	return nil
}

// CPUs validates a number of CPUs.
func CPUs(q resource.Quantity) error {
	if q.Sign() <= 0 || q.Cmp(mostCPUs) > 0 {
		return fmt.Errorf("must be greater than zero and at most %s", mostCPUs.String())
	}
	return nil
}

// Rate validates a number of bytes per second; 0 means no limit.
func Rate(q resource.Quantity) error {
	if q.Sign() < 0 || q.Cmp(mostStorage) > 0 {
		return errors.New("must not be negative; 0 means no limit; the most is 1Ei")
	}
	return nil
}

// Share validates the request of a node's resource; 0 is valid. With pieces, it must be whole.
func Share(name corev1.ResourceName, q resource.Quantity, pieces bool) error {
	most := mostStorage
	switch name {
	case corev1.ResourceCPU:
		most = mostCPUs
	case corev1.ResourceMemory:
		most = mostMemory
	}
	switch {
	case q.Sign() < 0:
		return errors.New("must not be negative")
	case q.Cmp(most) > 0:
		return fmt.Errorf("must be at most %s", most.String())
	case pieces && !whole(q):
		return errors.New("must be a whole number")
	}
	return nil
}

// whole reports whether an amount within the maximum has no fraction.
func whole(q resource.Quantity) bool { return q.Cmp(*resource.NewQuantity(q.Value(), q.Format)) == 0 }

// Pages parses a page size. Of a size's many notations, it returns that of the node's resource.
func Pages(text string) (resource.Quantity, error) {
	q, err := resource.ParseQuantity(text)
	if err == nil {
		for _, size := range pages {
			if q.Cmp(size) == 0 {
				return size, nil
			}
		}
	}
	return resource.Quantity{}, errors.New("must be the size of a page: 2Mi or 1Gi")
}
