"""Ends with an error unless a column of a log is lower in its last third than in its first.

    python fell.py training-log.csv loss
"""
import csv
import sys


def main():
    path, column = sys.argv[1:]
    with open(path, newline="") as file:
        values = [float(row[column]) for row in csv.DictReader(file)]
    third = max(1, len(values) // 3)
    first, last = sum(values[:third]) / third, sum(values[-third:]) / third
    print(f"{column}: {first:.3f} at first, {last:.3f} at last, of {len(values)} values")
    sys.exit(len(values) < 2 or not last < first)


if __name__ == "__main__":
    main()
