//go:build mysql

package mysql

import (
	"testing"

	"github.com/locket-service/locket/fixtures"
)

// TestVisibleIsDurableOnMySQL: the same for MySQL without a binary log.
func TestVisibleIsDurableOnMySQL(t *testing.T) {
	disk := fixtures.NewDisk(t)
	visibleIsDurable(t, disk, fixtures.NewMySQLd(t, fixtures.WithDisk(disk), fixtures.WithServerArgs("--skip-log-bin", withoutStatistics)).MariaDB)
}
