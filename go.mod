module kdapl

go 1.26
