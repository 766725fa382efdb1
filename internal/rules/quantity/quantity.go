// Package quantity judges the amounts that users write, so that whoever reckons with one has a number that is meant, and
// room to add to it.
//
// It owns the least and the most of each sort, and the one reading of a size of pages. It must not know where an amount is
// written.
package quantity

import (
	"errors"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
)

// The most of each sort: more than any machine has, and little enough to be added up.
var (
	mostMemory  = resource.MustParse("16Ti")
	mostStorage = resource.MustParse("1Ei")
	mostCPUs    = resource.MustParse("65536")
)

// The sizes that pages can have beside the ordinary ones (x86-64).
var pages = []resource.Quantity{resource.MustParse("2Mi"), resource.MustParse("1Gi")}

// Memory returns what is wrong with an amount of memory, nil for nothing. It is whole bytes, more than none and at most 16Ti.
func Memory(q resource.Quantity) error {
	if q.Sign() <= 0 || q.Cmp(mostMemory) > 0 || !whole(q) {
		return errors.New("must be an amount of memory: whole bytes, more than 0 and at most 16Ti")
	}
	return nil
}

// Storage returns what is wrong with the size of a disk, nil for nothing. It is more than nothing and at most 1Ei.
func Storage(q resource.Quantity) error {
	if q.Sign() <= 0 || q.Cmp(mostStorage) > 0 {
		return errors.New("must be greater than zero and at most 1Ei")
	}
	return nil
}

// CPUs returns what is wrong with a number of CPUs, nil for nothing. It is more than none.
func CPUs(q resource.Quantity) error {
	if q.Sign() <= 0 || q.Cmp(mostCPUs) > 0 {
		return fmt.Errorf("must be greater than zero and at most %s", mostCPUs.String())
	}
	return nil
}

// Rate returns what is wrong with a number of bytes in a second, 0 of which is no limit; nil for nothing.
func Rate(q resource.Quantity) error {
	if q.Sign() < 0 || q.Cmp(mostStorage) > 0 {
		return errors.New("must not be negative; 0 means no limit; the most is 1Ei")
	}
	return nil
}

// Share returns what is wrong with what is asked of a resource of nodes, nil for nothing. It may be nothing. Of what nodes
// have whole pieces, it is a whole number of them.
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

// whole reports whether an amount that is no larger than the most has no fraction.
func whole(q resource.Quantity) bool { return q.Cmp(*resource.NewQuantity(q.Value(), q.Format)) == 0 }

// Pages reads the size of a page as nodes call it. One size may be written in many ways; the name of a node's resource
// has one of them.
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
